"""The separate metrics page of single queues. There may be very many, so it is limited and built in slices."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from ...core.queue.counters import COUNTERS
from ..access.clients import NODE
from ..queues.patterns.patterns import client_pattern
from ..queues.views.info import age_s, busy_groups
from ..queues.views.listing import names_in_order
from .exposition import escaped, head
from .table import QUEUE_SECTION

if TYPE_CHECKING:
    from ...core import Queue
    from ..node import Node
    from ..queues.pulls.pulls import Pulls

    Samples = Sequence[tuple[str, float]]
    """Further labels and a value."""
    _Value = Callable[[Queue, int, Pulls], Samples]

__all__ = ["QUEUES_DEFAULT", "QUEUES_MAX", "queues_page"]

QUEUES_DEFAULT: Final = 1_000
QUEUES_MAX: Final = 100_000
_OMITTED: Final = "lmq_queue_metrics_omitted"


async def queues_page(
    node: Node, pattern: bytes | None = None, limit: int = QUEUES_DEFAULT, client: bytes = NODE
) -> AsyncIterator[bytes]:
    """Yield the page in the text format, version 0.0.4, in pieces, scheduled as work of this client.

    It has the first `limit` queues by name, so that consecutive scrapes show the same queues. The format requires the lines of
    a metric to be together, so the queues are visited once per metric. If a queue is deleted between, later metrics omit it.

    Args:
        pattern: a regular expression that selects queues by name; None for all.

    Raises:
        LmqError: ``bad_pattern``, with the first piece.
    """
    state, turns, matches = node.service.sender.state, node.turns, _matcher(pattern)
    shown: list[tuple[bytes, str]] = []
    count = 0
    async for name in turns.each(names_in_order(state), client):
        if matches(name):
            count += 1
            if len(shown) < limit:
                shown.append((name, escaped(name.decode("utf-8", "backslashreplace"))))
    for metric in (one.name for one in QUEUE_SECTION.metrics if one.name != _OMITTED):
        yield f"{head(metric)}\n".encode()
        value = _VALUES[metric]
        async for block in turns.blocks(shown, client):
            queues, now_us = state().queues, node.replica.clock.now_us()
            rows = ((queues.get(name), label) for name, label in block)
            lines = [
                f'{metric}{{queue="{label}"{more}}} {number}\n'
                for queue, label in rows
                if queue is not None
                for more, number in value(queue, now_us, node.service.pulls)
            ]
            yield "".join(lines).encode()
    yield f"{head(_OMITTED)}\n{_OMITTED} {max(0, count - limit)}\n".encode()


def _matcher(pattern: bytes | None) -> Callable[[bytes], bool]:
    return (lambda _name: True) if pattern is None else client_pattern(pattern)


def _states(queue: Queue, now_us: int, _pulls: Pulls) -> Samples:
    ready = queue.store.due_count(now_us)
    counts = {"ready": ready, "delayed": queue.store.waiting() - ready, "leased": len(queue.store.leases.messages)}
    return [(f',state="{state}"', count) for state, count in counts.items()]


def _held_back(queue: Queue, now_us: int, _pulls: Pulls) -> Samples:
    return [(f',limit="{limit}"', count) for limit, count in queue.limits.held_back(now_us).items()]


def _one(value: Callable[[Queue], float]) -> _Value:
    return lambda queue, _now_us, _pulls: (("", value(queue)),)


_VALUES: Final[Mapping[str, _Value]] = {
    "lmq_queue_messages": _states,
    "lmq_queue_messages_held": _one(lambda queue: 0 if queue.store.rich is None else len(queue.store.rich.held)),
    "lmq_queue_groups_busy": _one(busy_groups),
    "lmq_queue_messages_held_back": _held_back,
    "lmq_queue_message_bytes": _one(lambda queue: queue.store.body_bytes),
    "lmq_queue_oldest_message_age_seconds": lambda queue, now_us, _pulls: (
        ("", age_s(queue.store.earliest_us(), now_us) or 0.0),
    ),
    "lmq_queue_suspended": _one(lambda queue: int(queue.suspended)),
    "lmq_queue_pushes_waiting": _one(lambda queue: queue.pushes_waiting),
    "lmq_queue_waiters": lambda queue, _now_us, pulls: (("", pulls.waiting_for(queue.name)),),
    **{f"lmq_queue_messages_{counter}": _one(attrgetter(f"counters.{counter}")) for counter in COUNTERS},
}
"""Functions that return the samples of a queue by metric."""
