"""A short flood of refusals; `python -m tests.integration.refusal_flood` is the long one."""

from pathlib import Path

from .bad_input import MIB
from .refusal_flood import LEFT_BYTES_MAX, flood

ROUNDS = 3


def test_refusals_and_broken_connections_leave_no_memory(tmp_path: Path) -> None:
    for memory in flood(tmp_path, 4 * MIB, 12, lambda rounds: rounds < ROUNDS):
        print(memory)
        assert memory.left_bytes <= LEFT_BYTES_MAX, str(memory)
