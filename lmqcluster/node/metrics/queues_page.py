"""Metrics of single queues, a page of their own: there may be very many, so it is limited, and written in slices."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from operator import sub
from typing import TYPE_CHECKING, Final

from ...core.queue_counters import COUNTERS
from ..access.clients import NODE
from ..queues.info import age_s, counts_of
from ..queues.patterns import client_pattern
from .exposition import escaped, head
from .table import QUEUE_SECTION

if TYPE_CHECKING:
    from ...core import Machine, Queue
    from ..node import Node
    from ..queues.pulls import Pulls
    from ..turns import Turns

__all__ = ["QUEUES_DEFAULT", "QUEUES_MAX", "queues_page"]

QUEUES_DEFAULT: Final = 1_000
QUEUES_MAX: Final = 100_000
_PER_SLICE: Final = 100


async def queues_page(node: Node, pattern: bytes | None = None, limit: int = QUEUES_DEFAULT) -> bytes:
    """The page in the text format, version 0.0.4: the first `limit` queues by name, so that a scrape shows those of the last.

    Args:
        pattern: a regular expression; only queues whose names it finds are meant. None for all.

    Raises:
        LmqError: ``bad_pattern``.
    """
    machine = node.replica.machine
    names = await _names(machine, pattern, node.turns)
    now_us = node.replica.clock.now_us()
    page = _Page()
    shown = names[:limit]
    for start in range(0, len(shown), _PER_SLICE):
        # A queue may have been deleted in the meantime.
        found = [queue for name in shown[start : start + _PER_SLICE] if (queue := machine.queues.get(name)) is not None]
        page.add(found, now_us, node.service.pulls)
        await asyncio.sleep(0)
    return await page.text(max(0, len(names) - limit))


async def _names(machine: Machine, pattern: bytes | None, turns: Turns) -> list[bytes]:
    names = sorted(machine.queues)
    if pattern is None:
        return names
    matches = client_pattern(pattern)
    return [name async for name in turns.each(names, NODE) if matches(name)]


class _Page:
    """Lines by metric, because the format wants those of one metric together."""

    def __init__(self) -> None:
        self._lines: dict[str, list[str]] = {one.name: [] for one in QUEUE_SECTION.metrics}

    def add(self, queues: Sequence[Queue], now_us: int, pulls: Pulls) -> None:
        """Write the lines of some queues."""
        names = [escaped(queue.name.decode("utf-8", "backslashreplace")) for queue in queues]
        states = self._lines["lmq_queue_messages"]
        ready = [queue.due_count(now_us) for queue in queues]
        waiting = [queue.waiting() for queue in queues]
        for state, counts in (
            ("ready", ready),
            ("delayed", list(map(sub, waiting, ready))),
            ("leased", [len(queue.leases.messages) for queue in queues]),
        ):
            states += [
                f'lmq_queue_messages{{queue="{name}",state="{state}"}} {count}'
                for name, count in zip(names, counts, strict=True)
            ]
        ages = [age_s(queue.earliest_us(), now_us) or 0.0 for queue in queues]
        rich = [queue.rich for queue in queues]
        self._add("lmq_queue_messages_held", names, [0 if one is None else len(one.held) for one in rich])
        self._add("lmq_queue_groups_busy", names, [0 if one is None else len(one.current) for one in rich])
        self._add("lmq_queue_message_bytes", names, [queue.body_bytes for queue in queues])
        self._add("lmq_queue_oldest_message_age_seconds", names, ages)
        self._add("lmq_queue_suspended", names, [int(queue.suspended) for queue in queues])
        self._add("lmq_queue_pushes_waiting", names, [queue.pushes_waiting for queue in queues])
        self._add("lmq_queue_waiters", names, [pulls.waiting_for(queue.name) for queue in queues])
        # Without queues there are no columns.
        for counter, column in zip(COUNTERS, zip(*map(counts_of, queues), strict=True), strict=False):
            self._add(f"lmq_queue_messages_{counter}", names, column)

    def _add(self, metric: str, names: Sequence[str], values: Sequence[float]) -> None:
        self._lines[metric] += [
            f'{metric}{{queue="{name}"}} {value}' for name, value in zip(names, values, strict=True)
        ]

    async def text(self, omitted: int) -> bytes:
        """The page, which ends with how many queues are not on it."""
        self._lines["lmq_queue_metrics_omitted"].append(f"lmq_queue_metrics_omitted {omitted}")
        parts: list[bytes] = []
        for name, lines in self._lines.items():
            parts.append("\n".join((head(name), *lines, "")).encode())
            await asyncio.sleep(0)
        return b"".join(parts)
