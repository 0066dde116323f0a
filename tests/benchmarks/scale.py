"""The twelve reasons not to use ZooKeeper for queues (N1 to N12), measured here: ``python -m tests.benchmarks.scale``.

Three nodes in durability mode ``disk`` and the clients run on this machine. The short sizes take some minutes, the full
ones about 20 minutes, 20 GB of disk and 4 GB of memory. The table shows each figure beside its target; the program does
not judge.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import re
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import uvloop

from lmqcluster import AsyncClient, LmqError
from tests.integration.canary import rss_bytes
from tests.integration.cluster import Cluster, fetch, wait_for

from .backlog import Backlog, post
from .scale_report import Depth, Report, percentile

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

BODY: Final = b"x" * 100
BATCH: Final = 500
IN_FLIGHT: Final = 256
SHALLOW: Final = 1_000
CONSUMER_CLIENTS: Final = 20
LARGE: Final = 64 << 20
LARGE_ROUNDS: Final = 6
SPACE_S: Final = 60.0
CALM_S: Final = 10.0
"""Time for which single pushes are measured before a node joins."""
MILLI: Final = 1e3


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes of the measurements.

    Attributes:
        depths: messages of a queue, rising.
        turn: operations of one measurement.
        body_bytes: sum of all bodies of 64 KiB.
        queue_messages: in each of the 10,000 queues.
        rich: messages with a priority, and with a delay.
    """

    depths: tuple[int, ...]
    turn: int
    body_bytes: int
    queue_messages: int
    rich: int


SHORT: Final = Sizes((SHALLOW, 100_000, 1_000_000), 20_000, 400 << 20, 10, 100_000)
FULL: Final = Sizes((SHALLOW, 100_000, 1_000_000, 10_000_000), 50_000, 4 << 30, 1_000, 1_000_000)
QUEUES: Final = 10_000


async def rate(count: int, call: Callable[[int], Awaitable[object]], in_flight: int = IN_FLIGHT) -> float:
    """Return calls per second with `in_flight` in flight."""
    numbers = iter(range(count))

    async def work() -> None:
        for number in numbers:
            await call(number)

    began = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(in_flight)))
    return count / (time.perf_counter() - began)


async def times_ms(count: int, call: Callable[[int], Awaitable[object]]) -> list[float]:
    """Return the milliseconds of each call, one at a time."""
    found = []
    for number in range(count):
        began = time.perf_counter()
        await call(number)
        found.append((time.perf_counter() - began) * MILLI)
    return found


def noise(count: int, size: int = len(BODY)) -> list[bytes]:
    """Return bodies that cannot be compressed."""
    data = os.urandom(count * size)
    return [data[start : start + size] for start in range(0, count * size, size)]


async def fill(client: AsyncClient, queue: str, messages: int, size: int = len(BODY)) -> None:
    """Store `messages` messages."""
    batch = max(1, min(BATCH, (1 << 20) // size))

    async def push(start: int) -> None:
        await client.push_many(queue, noise(min(batch, messages - start * batch), size))

    await rate(-(-messages // batch), push, in_flight=8)


async def take(client: AsyncClient, queue: str) -> bytes:
    """Pull a message and acknowledge it."""
    message = await client.pull(queue, 60)
    assert message is not None
    await message.ack()
    content: bytes = message.content
    return content


def metric(cluster: Cluster, name: str) -> list[float]:
    """Return a metric of every node."""
    pages = (fetch(node.http, "/metrics")[1].decode() for node in cluster)
    return [float(value) for page in pages for value in re.findall(rf"^{name} (\S+)$", page, re.MULTILINE)]


class Scale:
    """One run."""

    def __init__(self, cluster: Cluster, sizes: Sizes, report: Report) -> None:
        self._cluster = cluster
        self._sizes = sizes
        self._report = report

    @asynccontextmanager
    async def _client(self) -> AsyncIterator[AsyncClient]:
        async with AsyncClient(self._cluster.leader().rpc) as client:
            yield client

    async def n1(self) -> None:
        """Measure the largest message beside a flow of small ones."""
        waits: list[float] = []
        terms, stop = metric(self._cluster, "lmq_raft_term"), asyncio.Event()

        async def small(address: str) -> None:
            async with AsyncClient(address) as client:
                while not stop.is_set():
                    began = time.perf_counter()
                    await client.push("small", BODY)
                    await take(client, "small")
                    waits.append(time.perf_counter() - began)

        flows = [asyncio.create_task(small(node.rpc)) for node in self._cluster]
        size = (LARGE, LARGE_ROUNDS)
        arguments = ["-m", "tests.benchmarks.large_flow", ",".join(self._cluster.rpc_addresses), *map(str, size)]
        large = await asyncio.create_subprocess_exec(sys.executable, *arguments)
        outcome = "unchanged" if await large.wait() == 0 else "FAILED"
        stop.set()
        await asyncio.gather(*flows)
        same = terms == metric(self._cluster, "lmq_raft_term")
        self._report.row(
            "N1",
            f"{LARGE >> 20} MiB pushed, delivered, nacked and redelivered {LARGE_ROUNDS} times, through each node in turn, "
            f"then 100 x 1 MiB in one call; beside it a small push, pull and ack through each node, p50, p99, of {len(waits):,}",
            "64 MiB unchanged; 1,000 ms; no election",
            f"{outcome}; {statistics.median(waits) * MILLI:,.0f} ms, {percentile(waits, 0.99) * MILLI:,.0f} ms; "
            f"{'no' if same else 'an'} election",
        )
        async with self._client() as client:
            try:
                await client.push("large", b"x" * (LARGE + 1))
            except LmqError as error:
                self._report.row("N1", "one byte more", "refused", f"`{error.code}`")

    async def n2(self) -> None:
        """Measure rates, times and memory by depth; then count and remove the deepest queue."""
        async with self._client() as client:
            held = 0
            for messages in self._sizes.depths:
                await fill(client, "deep", messages - held)
                held = messages
                self._report.depths.append(await self._depth(client, messages))
            shallow, deep = self._report.depths[0], self._report.depths[-1]
            for what, one, other in (
                ("push", deep.push_rate, shallow.push_rate),
                ("pull + ack", deep.pull_rate, shallow.pull_rate),
            ):
                self._report.row(
                    "N2",
                    f"{what} with {held:,} messages in the queue, beside {SHALLOW:,}; a second, {IN_FLIGHT} in flight",
                    "at least 0.8 of it",
                    f"{one:,.0f}, {other:,.0f}: {one / other:.2f}",
                )
            grown = deep.memory_bytes - shallow.memory_bytes
            self._report.row(
                "N5",
                f"memory of a node with {held:,} messages of {len(BODY)} bytes; increase over {SHALLOW:,}, per message",
                "500 MB; 250 bytes",
                f"{deep.memory_bytes / 1e6:,.0f} MB; {grown / held:.0f} bytes",
            )

    async def _depth(self, client: AsyncClient, messages: int) -> Depth:
        pushes, pulls = [], []
        for _ in range(3):
            pushes.append(await rate(self._sizes.turn, lambda _: client.push("deep", BODY)))
            pulls.append(await rate(self._sizes.turn, lambda _: take(client, "deep")))
        push_ms = await times_ms(500, lambda _: client.push("deep", BODY))
        pull_ms = await times_ms(500, lambda _: take(client, "deep"))
        return Depth(
            messages,
            statistics.median(pushes),
            statistics.median(pulls),
            percentile(push_ms, 0.99),
            percentile(pull_ms, 0.99),
            self._memory_bytes(),
        )

    def _memory_bytes(self) -> int:
        return max(rss_bytes(node) for node in self._cluster)

    async def n3(self) -> None:
        """Measure a count, and a purge that frees the disk."""
        async with self._client() as client:
            held = (await client.backlog(queue="deep")).messages
            counted = await times_ms(50, lambda _: client.backlog(queue="deep"))
            self._report.row("N3", f"a count of {held:,} messages, p99", "10 ms", f"{percentile(counted, 0.99):.1f} ms")
            files = sum(metric(self._cluster, "lmq_page_files_bytes"))
            entries = max(metric(self._cluster, "lmq_raft_commit_index"))
            began = time.perf_counter()
            await client.purge("deep")
            purged_s = time.perf_counter() - began
            entries = max(metric(self._cluster, "lmq_raft_commit_index")) - entries
            self._report.row(
                "N3",
                f"a purge of {held:,} messages; entries of the log for it",
                "1,000 ms; 1",
                f"{purged_s * MILLI:,.0f} ms; {entries:.0f}",
            )
            await asyncio.to_thread(wait_for, self._has_space, "the disk is free again", 10 * SPACE_S)
            self._report.row(
                "N3",
                f"until {files / 1e9:.1f} GB are free again",
                f"{SPACE_S:.0f} s",
                f"{time.perf_counter() - began:.1f} s",
            )

    def _has_space(self) -> bool:
        return sum(metric(self._cluster, "lmq_page_files_bytes")) < 3 * (8 << 20)

    async def n4(self) -> None:
        """Measure restarts, the loss of the leader, and a new node."""
        messages = self._sizes.depths[-1]
        backlog = Backlog(self._cluster, ["deep"], BODY)
        await self._snapshots(backlog, messages)
        one_s = await asyncio.to_thread(backlog.restart_one)
        all_s = await asyncio.to_thread(backlog.restart_all)
        self._report.row(
            "N4", f"a node with {messages:,} messages ready, all three", "5 s, 10 s", f"{one_s:.1f} s, {all_s:.1f} s"
        )
        async with AsyncClient(self._cluster.rpc_addresses) as client:
            await client.push("after", BODY)
            leader = self._cluster.leader()
            leader.kill()
            began = time.perf_counter()
            await client.push("after", BODY)
            first_s = time.perf_counter() - began
            await asyncio.to_thread(leader.start)
        self._report.row("N4", "leader killed: first push acknowledged after", "5 s", f"{first_s:.1f} s")
        await self._join(backlog, messages)

    async def _join(self, backlog: Backlog, messages: int) -> None:
        """Join a fourth node, and time single pushes before and during the join."""
        waits: list[float] = []
        calm_ms: list[float] = []
        stop = asyncio.Event()
        async with self._client() as client:

            async def single() -> None:
                while not stop.is_set():
                    waits.extend(await times_ms(1, lambda _: client.push("single", BODY)))

            async def calm() -> None:
                await asyncio.sleep(CALM_S)
                calm_ms.extend(waits)
                waits.clear()

            probe = asyncio.create_task(single())
            joined_s, pushed = await backlog.join(5_000, calm)
            stop.set()
            await probe
        self._report.row(
            "N4",
            f"a fourth node in step with {messages:,} messages, under {pushed:,.0f} pushes/s;"
            " a push before and during the join, p99",
            "60 s (of 1 GB); doubled at most",
            f"{joined_s:.1f} s; {percentile(calm_ms, 0.99):.1f} and {percentile(waits, 0.99):.1f} ms",
        )

    async def _snapshots(self, backlog: Backlog, messages: int) -> None:
        longest_s = max(longest_s for _name, _took_s, longest_s in await backlog.snapshots())
        self._report.row(
            "N4",
            f"longest push, pull and ack while nodes with {messages:,} messages take snapshots",
            "100 ms",
            f"{longest_s * MILLI:.0f} ms",
        )
        async with self._client() as client:
            await rate(1_000, lambda _: client.push("deep", BODY))
        node = self._cluster[0]
        before = metric(self._cluster, "lmq_page_files_bytes")[0]
        info = await asyncio.to_thread(post, node, "/v1/snapshots", {"portable": False})
        pages = metric(self._cluster, "lmq_page_files_bytes")[0] - before
        self._report.row(
            "N4",
            "a snapshot after 1,000 more pushes writes",
            "20 MB",
            f"{info['size_bytes'] / 1e6:.2f} MB, and {pages / 1e6:.2f} MB of pages",
        )

    async def n5(self) -> None:
        """Measure bodies that are larger than memory."""
        size = 64 << 10
        async with self._client() as client:
            await fill(client, "bodies", self._sizes.body_bytes // size, size)
            self._report.row(
                "N5",
                f"memory of a node with {self._sizes.body_bytes / 1e9:.1f} GB of bodies of 64 KiB",
                "1,000 MB",
                f"{self._memory_bytes() / 1e6:,.0f} MB",
            )
            await client.purge("bodies")

    async def n6(self) -> None:
        """Measure ten thousand queues."""
        each = self._sizes.queue_messages
        async with self._client() as client:
            made = await rate(QUEUES, lambda number: client.push_many(f"many-{number}", [BODY] * each), in_flight=16)
            chance = random.Random(2)
            pulled = await times_ms(500, lambda _: take(client, f"many-{chance.randrange(QUEUES)}"))
            node = self._cluster[0]
            listed = await times_ms(20, lambda _: asyncio.to_thread(node.get_json, "/v1/queues?limit=100"))
            self._report.row(
                "N6",
                f"of {QUEUES:,} queues with {each:,} messages each: one created, a pull and ack from any, a page of 100; p50",
                "50 ms each",
                f"{MILLI / made:.2f} ms, {statistics.median(pulled):.1f} ms, {statistics.median(listed):.1f} ms",
            )
            self._report.row("N6", "memory of a node with them", "-", f"{self._memory_bytes() / 1e6:,.0f} MB")

    async def n7(self) -> None:
        """Measure that one push wakes one of many consumers."""
        addresses = self._cluster.rpc_addresses
        delivered: asyncio.Queue[float] = asyncio.Queue()
        clients = [AsyncClient(addresses[n % 3 :] + addresses[: n % 3]) for n in range(CONSUMER_CLIENTS)]

        async def consume(client: AsyncClient) -> None:
            while True:
                message = await client.pull("watched", None)
                assert message is not None
                delivered.put_nowait(time.perf_counter())
                await message.ack()

        tasks = [asyncio.create_task(consume(client)) for client in clients for _ in range(1_000 // CONSUMER_CLIENTS)]
        took: list[float] = []
        async with AsyncClient(addresses) as producer:
            await producer.push("watched", BODY)
            await delivered.get()
            for _ in range(300):
                began = time.perf_counter()
                await producer.push("watched", BODY)
                took.append((await delivered.get() - began) * MILLI)
        assert delivered.empty()
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        for client in clients:
            await client.close()
        self._report.row(
            "N7",
            "from the start of a push to its delivery to one of 1,000 waiting consumers, p99",
            "50 ms",
            f"{percentile(took, 0.99):.0f} ms",
        )

    async def n8(self) -> None:
        """Measure an urgent message among many."""
        chance, messages = random.Random(3), self._sizes.rich
        async with self._client() as client:
            await rate(messages, lambda _: client.push("ranked", BODY, priority=chance.randrange(100, 200)))
            urgent = []
            for number in range(100):
                began = time.perf_counter()
                await client.push("ranked", b"urgent %d" % number, priority=1)
                assert await take(client, "ranked") == b"urgent %d" % number
                urgent.append((time.perf_counter() - began) * MILLI)
            self._report.row(
                "N8",
                f"an urgent message among {messages:,}, pushed, pulled next and acked, p99",
                "50 ms",
                f"{percentile(urgent, 0.99):.0f} ms",
            )
            await fill(client, "plain", self._sizes.turn)
            plain = await rate(self._sizes.turn, lambda _: take(client, "plain"))
            ranked = await rate(self._sizes.turn, lambda _: take(client, "ranked"))
            self._report.row(
                "N8",
                "pull + ack by priority, beside a plain queue; a second",
                "at least 0.5 of it",
                f"{ranked:,.0f}, {plain:,.0f}: {ranked / plain:.2f}",
            )
            await client.purge("ranked")

    async def n9(self) -> None:
        """Measure push, lease and ack of each message, by 64 clients."""
        clients = [AsyncClient(self._cluster.rpc_addresses) for _ in range(64)]

        async def work(number: int, client: AsyncClient, count: int) -> None:
            for _ in range(count):
                await client.push(f"safe-{number}", BODY)
                await take(client, f"safe-{number}")

        await asyncio.gather(*(work(number, client, 2) for number, client in enumerate(clients)))
        before, began = self._syncs(), time.perf_counter()
        await asyncio.gather(*(work(number, client, 150) for number, client in enumerate(clients)))
        took_s, count = time.perf_counter() - began, 64 * 150
        synced = self._syncs() - before
        for client in clients:
            await client.close()
        self._report.row(
            "N9",
            "64 clients, each with one message at a time pushed, leased and acked; for each sync of the log",
            "5,000 messages/s; 10",
            f"{count / took_s:,.0f} messages/s; {count / synced:.0f}",
        )

    def _syncs(self) -> float:
        page = fetch(self._cluster.leader().http, "/metrics")[1].decode()
        return float(re.findall(r"^lmq_raft_log_syncs_total (\S+)$", page, re.MULTILINE)[0])

    async def n10(self) -> None:
        """Measure a bound, with 64 producers at once."""
        bound = 1_000
        async with self._client() as client:
            await client.update_props("bounded", {"max_items": bound})
            clients = [AsyncClient(self._cluster.rpc_addresses) for _ in range(64)]
            refused = 0

            async def work(producer: AsyncClient) -> None:
                nonlocal refused
                for _ in range(40):
                    try:
                        await producer.push("bounded", BODY)
                    except LmqError as error:
                        if error.code != "full":
                            raise
                        refused += 1

            await asyncio.gather(*map(work, clients))
            for producer in clients:
                await producer.close()
            held = (await client.backlog(queue="bounded")).messages
            self._report.row(
                "N10",
                f"messages in a queue bounded to {bound:,} after 2,560 pushes by 64 producers; refused",
                f"{bound:,}; 1,560",
                f"{held:,}; {refused:,}",
            )

    async def n11(self) -> None:
        """Measure a consumer that has lost its lease."""
        async with self._client() as client, AsyncClient(self._cluster.followers()[0].rpc) as other:
            await client.update_props("leased", {"timeout": 1})
            await client.push("leased", BODY)
            stale = await client.pull("leased", 60)
            assert stale is not None
            again = await other.pull("leased", 60)
            assert again is not None
            settled = [
                await client.release("leased", stale.id),
                await client.retain("leased", stale.id),
                await client.done("leased", stale.id),
                await other.done("leased", again.id),
            ]
            refused = settled == [False, False, False, True]
            self._report.row(
                "N11",
                "nack, extend and ack without the lease; ack with it",
                "refused; taken",
                "refused; taken" if refused else f"{settled}",
            )

    async def n12(self) -> None:
        """Measure how punctually delayed messages are delivered."""
        chance, messages = random.Random(4), self._sizes.rich
        due: dict[bytes, tuple[float, float]] = {}
        # All are pushed before the first is due.
        first_s = 10 + messages / 5_000
        async with self._client() as client:

            async def push(number: int) -> None:
                delay_s, began = chance.uniform(first_s, first_s + 30), time.time()
                await client.push("delayed", b"%d" % number, delay=delay_s)
                due[b"%d" % number] = (began + delay_s, time.time() + delay_s)

            await rate(messages, push)
            early = late = 0.0
            while due:
                pulled = await client.pull_many("delayed", BATCH, 60)
                for message in pulled:
                    now, (first, last) = time.time(), due.pop(message.content)
                    early, late = max(early, first - now), max(late, now - last)
                await client.done_many("delayed", [message.id for message in pulled])
            self._report.row(
                "N12",
                f"{messages:,} messages delayed by {first_s:.0f} to {first_s + 30:.0f} s; the earliest, the latest by this "
                "machine's clock",
                "0 s early; 1 s late",
                f"{early:.3f} s early; {late:.2f} s late",
            )


async def run(cluster: Cluster, sizes: Sizes, report: Report, only: set[str]) -> None:
    """Run the selected measurements. The order separates those that fill memory from those that measure it."""
    scale = Scale(cluster, sizes, report)
    for name in ("n2", "n4", "n3", "n5", "n1", "n7", "n9", "n10", "n11", "n6", "n8", "n12"):
        if not only or name in only:
            await getattr(scale, name)()


def main() -> int:
    """Run the program."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.scale", description=__doc__)
    parser.add_argument("--full", action="store_true", help="the full sizes")
    parser.add_argument(
        "--only", default="", metavar="N2,N3", help="only these reasons; N3 and N4 need the queue of N2"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="file for the figures as JSON")
    parser.add_argument("--plots", type=Path, metavar="FOLDER", help="folder for plots by depth")
    given = parser.parse_args()
    report = Report()
    only = {name.strip().lower() for name in given.only.split(",") if name.strip()}
    with Cluster(3) as cluster:
        uvloop.run(run(cluster, FULL if given.full else SHORT, report, only))
    if given.json:
        report.write(given.json)
    if given.plots and report.depths:
        report.draw(given.plots)
    return 0


if __name__ == "__main__":
    sys.exit(main())
