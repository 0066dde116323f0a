"""Pages of the list of queues: filtered, sorted and cut at the node, in slices that do not hold up its other work."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from ...core import Machine, Queue
from ...wire.errors import LmqError
from ..turns import Turns
from .info import QueueInfo, Rates, age_s, dead_letters, info_of, no_rates
from .patterns import client_pattern

__all__ = ["SORT_KEYS", "STATES", "QueueList", "QueuePage", "list_queues"]

_TOGETHER = 1_000
"""How many matches are gathered at least before those that cannot be on the page are dropped."""

SORT_KEYS: dict[str, Callable[[Queue, int, Rates], float]] = {
    "name": lambda _queue, _now_us, _rates: 0,
    "ready": lambda queue, now_us, _rates: queue.due_count(now_us),
    "delayed": lambda queue, now_us, _rates: queue.waiting() - queue.due_count(now_us),
    "leased": lambda queue, _now_us, _rates: len(queue.leases),
    "size": lambda queue, _now_us, _rates: len(queue),
    "bytes": lambda queue, _now_us, _rates: queue.body_bytes,
    "oldest": lambda queue, now_us, _rates: -1.0 if (age := age_s(queue.earliest_us(), now_us)) is None else age,
    "pushed": lambda queue, _now_us, _rates: queue.pushed_total,
    "pulled": lambda queue, _now_us, _rates: queue.pulled_total,
    "push_rate": lambda queue, _now_us, rates: rates(queue.name)[0],
    "pull_rate": lambda queue, _now_us, rates: rates(queue.name)[1],
    "redelivered": lambda queue, _now_us, _rates: queue.redelivered_total,
    "dropped": lambda queue, _now_us, _rates: queue.dropped_total,
    "dead_lettered": lambda queue, _now_us, _rates: queue.dead_lettered_total,
    "dead_letters": lambda queue, _now_us, _rates: dead_letters(queue),
}
"""What a list can be sorted by, at a log time and with rates. Equal queues stand in the order of their names."""

STATES: dict[str, Callable[[Queue, int], bool]] = {
    "ready": lambda queue, now_us: queue.due_count(now_us) > 0,
    "leased": lambda queue, _now_us: len(queue.leases) > 0,
    "delayed": lambda queue, now_us: queue.waiting() > queue.due_count(now_us),
    "empty": lambda queue, _now_us: len(queue) == 0,
    "suspended": lambda queue, _now_us: queue.suspended,
    "dropped": lambda queue, _now_us: queue.dropped_total > 0,
    "dead_letters": lambda queue, _now_us: dead_letters(queue) > 0,
}
"""What a list can be restricted to: queues with messages that are ready, leased or delayed; without messages; suspended; those
that have dropped messages, and those that have dead letters."""


@dataclass(frozen=True, slots=True)
class QueueList:
    """Which queues are wanted, and in which order.

    Attributes:
        name: only queues in whose names this is found; upper and lower case of ASCII letters are the same.
        pattern: only queues in whose names this regular expression is found.
        state: only queues in this one of `STATES`; None for all.
        sort: a key of `SORT_KEYS`.
        descending: whether the largest come first.
        after: only queues that stand behind this name; only for a list sorted by name.
        offset: how many of them to leave out.
        limit: how many to show.
        visible: which names may be seen at all; None for every one.
    """

    name: bytes = b""
    pattern: bytes | None = None
    state: str | None = None
    sort: str = "name"
    descending: bool = False
    after: bytes | None = None
    offset: int = 0
    limit: int = 100
    visible: Callable[[bytes], bool] | None = None


class QueuePage(NamedTuple):
    """A part of a list.

    Attributes:
        total: how many queues match, on this page or not.
        following: what to ask for as `QueueList.after` to go on; None at the end, and if the list is not sorted by name.
    """

    queues: list[QueueInfo]
    total: int
    following: bytes | None


_Row = tuple[float, bytes, Queue]


async def list_queues(
    machine: Callable[[], Machine], wanted: QueueList, turns: Turns, client: bytes, rates: Rates = no_rates
) -> QueuePage:
    """A page of the list of queues. It takes several slices of the event loop if there are many.

    Raises:
        LmqError: ``bad_pattern``; ``bad_request`` for an unknown sort key, and for `after` in a list that is not sorted by name.
    """
    if wanted.sort not in SORT_KEYS:
        raise LmqError("bad_request", f"queues can be sorted by {', '.join(SORT_KEYS)}, not by {wanted.sort[:40]!r}")
    if wanted.after is not None and wanted.sort != "name":
        raise LmqError("bad_request", "only a list sorted by name can go on after a name; use an offset")
    best, total = await _best(machine(), wanted, turns, client, rates)
    page = best[wanted.offset : wanted.offset + wanted.limit]
    now_us = machine().now_us
    infos = [info_of(queue, now_us, rates) async for _, _, queue in turns.each(page, client)]
    goes_on = wanted.sort == "name" and len(best) > wanted.offset + wanted.limit
    return QueuePage(infos, total, page[-1][1] if page and goes_on else None)


async def _best(
    machine: Machine, wanted: QueueList, turns: Turns, client: bytes, rates: Rates
) -> tuple[list[_Row], int]:
    """The first matches, one more than the page needs, and how many matches there are."""
    matches = _matcher(wanted)
    key, sign, now_us = SORT_KEYS[wanted.sort], -1 if wanted.descending else 1, machine.now_us
    backwards = wanted.sort == "name" and wanted.descending
    pick: Callable[..., list[Any]] = heapq.nlargest if backwards else heapq.nsmallest
    count = wanted.offset + wanted.limit + 1
    after, is_in_state = wanted.after, None if wanted.state is None else STATES[wanted.state]
    best: list[_Row] = []
    total = 0
    async for queue in turns.each(list(machine.queues.values()), client):
        if not matches(queue.name) or (is_in_state is not None and not is_in_state(queue, now_us)):
            continue
        total += 1
        if after is not None and not (queue.name < after if backwards else queue.name > after):
            continue
        best.append((sign * key(queue, now_us, rates), queue.name, queue))
        if len(best) >= 2 * count + _TOGETHER:
            best = pick(count, best)
    return pick(count, best), total


def _matcher(wanted: QueueList) -> Callable[[bytes], bool]:
    text = wanted.name.lower()
    if wanted.visible is not None:
        visible, others = wanted.visible, _matcher(replace(wanted, visible=None))
        return lambda name: visible(name) and others(name)
    if wanted.pattern is None:
        return lambda name: text in name.lower()
    search = client_pattern(wanted.pattern)
    return lambda name: text in name.lower() and search(name)
