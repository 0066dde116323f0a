"""Approximate memory of the replicated state, from running totals of the state machine, and memory of the process."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from ...core import Machine
from ...core.owners.quotas import ROWS, Kind

__all__ = [
    "BINDING_BYTES",
    "KEY_OVERHEAD_BYTES",
    "MESSAGE_OVERHEAD_BYTES",
    "QUEUE_BYTES",
    "resident_bytes",
    "stored_bytes",
]

MESSAGE_OVERHEAD_BYTES = 300
"""Approximate memory of a stored message without its body."""
KEY_OVERHEAD_BYTES = 300
"""Approximate memory of an idempotency key, a producer, a writer's mark, a subscription, a session or a place in a line."""
BINDING_BYTES = 400
"""Approximate memory of a binding."""
QUEUE_BYTES = 2_500
"""Approximate memory of an empty queue."""
_STATM: Final = Path("/proc/self/statm")
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


def stored_bytes(machine: Machine) -> int:
    """Return the bytes that count for `memory_bytes_max`.

    These are messages and bodies that are not paged out, queues, their properties and bindings, waiting pushes,
    schedules, tasks that move messages, and the state kept for owners.
    """
    totals, quotas, pager = machine.state.totals, machine.state.quotas, machine.state.pager
    return (
        totals.body_bytes
        - pager.paged_bytes
        - pager.paged_body_bytes
        + pager.idle_bytes
        - MESSAGE_OVERHEAD_BYTES * pager.paged_messages
        + totals.property_bytes
        + totals.trait_bytes
        + BINDING_BYTES * len(machine.state.bindings)
        + MESSAGE_OVERHEAD_BYTES * totals.messages
        + QUEUE_BYTES * len(machine.state.queues)
        + KEY_OVERHEAD_BYTES * sum(quotas.total(kind) for kind in ROWS)
        + quotas.total(Kind.NOTE_BYTES)
        + quotas.total(Kind.WAITING_BYTES)
        + quotas.total(Kind.SCHEDULE_BYTES)
        + machine.state.move_tasks.size_bytes
    )


def resident_bytes() -> int | None:
    """Return the resident memory of the process in bytes; None if ``/proc/self/statm`` is not available."""
    try:
        return int(_STATM.read_text(encoding="ascii").split()[1]) * _PAGE_BYTES
    except OSError:
        return None
