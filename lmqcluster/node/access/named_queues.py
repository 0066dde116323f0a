"""Permission check of properties that name other queues: the client needs write access, since messages go there in its name."""

from __future__ import annotations

from ...core import Role
from ...wire.properties import Properties
from ...wire.queue_options import QUEUE_OPTIONS
from .access import Principal

__all__ = ["check_named_queues"]


def check_named_queues(principal: Principal, properties: Properties) -> None:
    """Refuse properties that name queues that the client may not write to.

    Raises:
        LmqError: ``forbidden``.
    """
    for name, value in properties:
        unit = QUEUE_OPTIONS[name].unit if name in QUEUE_OPTIONS else ""
        named = value if unit == "queues" and isinstance(value, list) else [value] if unit == "queue" else []
        for queue in named:
            if isinstance(queue, str):
                principal.require(Role.WRITE, queue.encode())
