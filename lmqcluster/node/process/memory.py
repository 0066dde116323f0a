"""About how much memory the replicated state takes, from sums that the state machine keeps, and how much the process has."""

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
"""What a stored message costs beside its body, about."""
KEY_OVERHEAD_BYTES = 300
"""What a remembered idempotency key, producer, mark or subscription costs, about."""
BINDING_BYTES = 400
"""What a binding costs, about."""
QUEUE_BYTES = 2_500
"""What an empty queue costs, about."""
_STATM: Final = Path("/proc/self/statm")
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


def stored_bytes(machine: Machine) -> int:
    """What counts for `memory_bytes_max`: messages and bodies, but for those that stand in pages on the disk, queues, their
    properties and bindings, pushes that wait, and what is kept for owners."""
    stock, quotas, backlogs = machine.stock, machine.quotas, machine.backlogs
    return (
        stock.body_bytes
        - backlogs.paged_bytes
        - backlogs.paged_body_bytes
        + backlogs.idle_bytes
        - MESSAGE_OVERHEAD_BYTES * backlogs.paged_messages
        + stock.property_bytes
        + stock.trait_bytes
        + BINDING_BYTES * len(machine.bindings)
        + MESSAGE_OVERHEAD_BYTES * stock.messages
        + QUEUE_BYTES * len(machine.queues)
        + KEY_OVERHEAD_BYTES * sum(quotas.total(kind) for kind in ROWS)
        + quotas.total(Kind.NOTE_BYTES)
        + quotas.total(Kind.WAITING_BYTES)
    )


def resident_bytes() -> int | None:
    """Return how much memory the process has; None where the system does not tell it this way."""
    try:
        return int(_STATM.read_text(encoding="ascii").split()[1]) * _PAGE_BYTES
    except OSError:
        return None
