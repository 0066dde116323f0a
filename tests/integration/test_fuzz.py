"""A short campaign of bad input on all ports; ``python -m tests.fuzz`` runs long ones."""

from __future__ import annotations

import pytest

from tests.fuzz.campaign import Settings, make_input, run

INPUTS = 1200
SECONDS_MAX = 60.0


@pytest.mark.parametrize("tokens", [False, True], ids=["without tokens", "with tokens"])
def test_bad_input_harms_no_client(tokens: bool) -> None:
    report = run(Settings(seed=20_261_122, seconds=SECONDS_MAX, tokens=tokens, inputs_max=INPUTS))
    assert not report.problems, report.text()
    assert set(report.inputs) == {"http", "rpc", "raft", "memcache", "text", "thrift", "sqs"}
    assert report.pushed > 0
    assert report.closed > 0


def test_an_input_is_reproducible() -> None:
    """All of it follows from the seed and its number."""
    first, again = ([make_input(7, number, "token") for number in range(300)] for _ in range(2))
    assert first == again
    assert first != [make_input(8, number, "token") for number in range(300)]
