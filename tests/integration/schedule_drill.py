"""Schedules while leaders are killed and wall clocks are moved by hours: each due time once, none missed, none late.

``python -m tests.integration.schedule_drill --seconds 600 --schedules 1000`` runs it with 1,000 schedules of every second
and 1,000 with cron expressions.

At each time the clock of one node is wrong, that of the leader or of another one; the majority is right. The judge
knows the due times from the definitions alone.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lmqcluster_chaos.injection.control import Control
from lmqcluster_chaos.injection.tools import interposer

from lmqcluster import AsyncClient, LmqError

from .cluster import Cluster, NodeProcess

__all__ = ["Book", "schedule_drill"]

QUEUES = [f"ticks-{number}" for number in range(4)]
ZONES = ("Europe/Berlin", "America/New_York", "Australia/Lord_Howe")
MINUTE_S = 60
KILL_PERIOD_S = 20.0
DOWN_S = 2.0
HOURS_MAX = 10
SET_AT_ONCE = 50
PULL_MAX = 2_000
LATE_S = 1.0
LAST_S = 5
END_S = 60.0
"""Most time for the messages that remain at the end."""


@dataclass
class Book:
    """The due times of which messages arrived, and what happened in the meantime.

    Attributes:
        arrivals: by schedule and due time when its first message arrived.
        first: by schedule and due time the number of messages that arrived for the first time.
        rows: the schedules at the end, as the cluster shows them.
        kills: when leaders were killed.
    """

    begin_s: int
    end_s: int = 0
    arrivals: dict[tuple[str, int], float] = field(default_factory=dict)
    first: Counter[tuple[str, int]] = field(default_factory=Counter)
    rows: list[dict[str, Any]] = field(default_factory=list)
    kills: list[float] = field(default_factory=list)
    events: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def arrived(self, schedule: str, due_s: float, delivery: int | None) -> None:
        """Note a delivery of a message; a message that is delivered again is the same one."""
        key = schedule, round(due_s)
        self.first[key] += delivery == 1
        if key not in self.arrivals:
            self.arrivals[key] = time.time()
            self.changed.set()

    def expected(self, schedule: str) -> range:
        """Return the due times of a schedule in the judged time."""
        kind, number = schedule.split("-")
        if kind == "interval":
            return range(self.begin_s, self.end_s, 1)
        second = int(number) % MINUTE_S if int(number) % 2 else 0
        first = self.begin_s - self.begin_s % MINUTE_S + second
        return range(first if first >= self.begin_s else first + MINUTE_S, self.end_s, MINUTE_S)

    def judge(self, schedules: list[str]) -> list[str]:
        """Return what is wrong: due times without a message, or with several."""
        wrong = []
        for schedule in schedules:
            expected = self.expected(schedule)
            lost = [due_s for due_s in expected if (schedule, due_s) not in self.arrivals]
            if lost:
                wrong.append(
                    f"{schedule}: {len(lost)} of {len(expected)} due times have no message, such as {lost[:3]}"
                )
            if schedule.startswith("cron"):
                known = {due_s for name, due_s in self.arrivals if name == schedule}
                odd = {due_s for due_s in known if self.begin_s <= due_s < self.end_s} - set(expected)
                wrong += [f"{schedule}: messages at {sorted(odd)[:3]}, which are no due times"] if odd else []
        wrong += [f"{key}: {count} messages" for key, count in self.first.items() if count > 1]
        counts = Counter(name for name, _ in self.arrivals)
        for row in self.rows:
            if (row["pushed"], row["missed_total"], row["refused"]) != (counts[row["name"]], 0, 0):
                wrong.append(f"{row['name']}: {counts[row['name']]} due times arrived, the cluster shows {row}")
        return wrong

    def lateness_s(self) -> list[float]:
        """Return how late each message of a judged due time arrived, in order."""
        return sorted(at - due_s for (_, due_s), at in self.arrivals.items() if self.begin_s <= due_s < self.end_s)

    def slowest(self) -> list[str]:
        """Return when messages arrived late, and how long after the latest kill of a leader they were due."""
        slow: dict[int, float] = {}
        for (_, due_s), at in self.arrivals.items():
            if at - due_s >= LATE_S and self.begin_s <= due_s < self.end_s:
                slow[due_s] = max(slow.get(due_s, 0.0), at - due_s)
        return [
            f"due {due_s}: {late_s:.2f} s late, {due_s - max([0.0, *(one for one in self.kills if one < due_s + late_s)]):.2f} s"
            " after a kill"
            for due_s, late_s in sorted(slow.items())
        ]

    def __str__(self) -> str:
        late = self.lateness_s()
        shown = {name: late[min(len(late) - 1, int(part * len(late)))] for name, part in PARTS.items()} if late else {}
        figures = ", ".join(f"{name} {value:.3f} s" for name, value in shown.items())
        events = ", ".join(f"{count} {name}" for name, count in sorted(self.events.items()))
        return (
            f"{len(late)} due times in {self.end_s - self.begin_s} s; lateness {figures}; {events}; {dict(self.errors)}"
        )


PARTS = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999, "max": 1.0}


class Clocks:
    """The wall clocks of the nodes of a cluster that has not been started yet."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self._controls = {node.name: Control(folder / f"{node.name}.control") for node in cluster}
        for node in cluster:
            path = self._controls[node.name].path
            node.environment |= {"LD_PRELOAD": str(interposer()), "LMQ_DRILL_CONTROL": str(path)}
        self.hours: dict[str, int] = {node.name: 0 for node in cluster}

    def move(self, rng: random.Random) -> None:
        """Set the wrong clock right and another one wrong by some hours."""
        for name, hours in self.hours.items():
            if hours:
                self.hours[name] = 0
                self._controls[name].jump_clock(0)
        name = rng.choice([*self.hours])
        self.hours[name] = rng.choice([hours for hours in range(-HOURS_MAX, HOURS_MAX + 1) if hours])
        self._controls[name].jump_clock(self.hours[name] * 3_600)


async def schedule_drill(
    cluster: Cluster, clocks: Clocks, *, seconds: float, count: int, seed: int, kill_period_s: float = KILL_PERIOD_S
) -> tuple[Book, list[str]]:
    """Run `count` schedules of each kind for some seconds; return the book, and what is wrong."""
    rng = random.Random(seed)
    names = [f"{kind}-{number}" for kind in ("interval", "cron") for number in range(count)]
    addresses = cluster.rpc_addresses
    # All are set before the first due time that is judged.
    book = Book(begin_s=int(time.time()) + 10 + count // 50)
    async with AsyncClient(addresses) as client:
        for start in range(0, len(names), SET_AT_ONCE):
            await asyncio.gather(*(_set(client, name, book.begin_s) for name in names[start : start + SET_AT_ONCE]))
    assert time.time() < book.begin_s, "the schedules were set too slowly"
    over = asyncio.Event()
    orders = [addresses[number % 3 :] + addresses[: number % 3] for number in range(len(QUEUES))]
    consumers = [
        asyncio.create_task(_consume(book, order, queue, over)) for queue, order in zip(QUEUES, orders, strict=True)
    ]
    await asyncio.sleep(book.begin_s - time.time())
    end = time.monotonic() + seconds
    while (left_s := end - time.monotonic()) > 0:
        await asyncio.sleep(min(left_s, kill_period_s / 3))
        clocks.move(rng)
        book.events["clocks moved"] += 1
        await asyncio.sleep(max(0.0, min(end - time.monotonic(), kill_period_s * 2 / 3 - DOWN_S)))
        if end - time.monotonic() > 2 * DOWN_S:
            await _kill(cluster, book)
    # Messages of the last seconds may still be on their way.
    book.end_s = int(time.time()) - LAST_S
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(END_S):
            await _collect(book, addresses, names)
    over.set()
    await asyncio.gather(*consumers)
    return book, book.judge(names)


async def _collect(book: Book, addresses: list[str], names: list[str]) -> None:
    """Stop the schedules, and wait until as many messages have arrived as the cluster has pushed."""
    async with AsyncClient(addresses) as client:
        for start in range(0, len(names), SET_AT_ONCE):
            await asyncio.gather(*map(client.pause_schedule, names[start : start + SET_AT_ONCE]))
        book.rows = await client.schedules()
    while len(book.arrivals) < sum(row["pushed"] for row in book.rows):
        book.changed.clear()
        await book.changed.wait()


async def _kill(cluster: Cluster, book: Book) -> None:
    # Without the node that was killed before, the others have no quorum.
    for node in cluster:
        await asyncio.to_thread(node.wait_ready)
    leader: NodeProcess = await asyncio.to_thread(cluster.leader)
    begin_s = time.time()
    await asyncio.to_thread(leader.kill)
    book.events["leaders killed"] += 1
    await asyncio.sleep(DOWN_S)
    leader.start(wait=False)
    book.kills.append(begin_s)


async def _set(client: AsyncClient, name: str, begin_s: int) -> None:
    kind, digits = name.split("-")
    number = int(digits)
    queue = QUEUES[number % len(QUEUES)]
    if kind == "interval":
        await client.set_schedule(name, queue, name, interval=1, start=begin_s)
        return
    rule = f"{number % MINUTE_S} * * * * *" if number % 2 else "* * * * *"
    await client.set_schedule(name, queue, name, cron=rule, zone=ZONES[number % len(ZONES)])


async def _consume(book: Book, addresses: list[str], queue: str, over: asyncio.Event) -> None:
    async with AsyncClient(addresses) as client:
        while not over.is_set():
            try:
                messages = await client.pull_many(queue, PULL_MAX, 1)
                for one in messages:
                    attributes: dict[str, Any] = one.attributes
                    book.arrived(attributes["schedule"], attributes["scheduled_at"], one.delivery)
                if messages:
                    await client.done_many(queue, [one.id for one in messages])
            except LmqError as exc:
                book.errors[exc.code] += 1
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(over.wait(), 0.05)


def main() -> int:
    """Run the drill as the options say; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--schedules", type=int, default=1_000, help="of each kind")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path, help="where to keep the data and the logs of the nodes")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="schedule-drill-") as temporary:
        folder = options.folder or Path(temporary)
        cluster = Cluster(3, directory=folder)
        clocks = Clocks(cluster, folder)
        with cluster:
            drill = schedule_drill(cluster, clocks, seconds=options.seconds, count=options.schedules, seed=options.seed)
            book, wrong = asyncio.run(drill)
    print(book)
    print("\n".join(wrong[:20]) or "each due time had exactly one message")
    print(*book.slowest(), sep="\n")
    late = book.lateness_s()
    return int(bool(wrong) or late[int(0.99 * len(late))] >= LATE_S)


if __name__ == "__main__":
    sys.exit(main())
