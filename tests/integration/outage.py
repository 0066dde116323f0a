"""Clients of a cluster that is about to lose nodes, and the invariants of their messages after the outage."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self

from .cluster import Cluster, NodeProcess, wait_for
from .raw_rpc import Reply, Rpc

__all__ = ["Outage", "in_step", "queues"]

WINDOW = 32
PULLED_AT_ONCE = 5
LEASE_S = 600
STOCK = 10_000
DEADLINE_S = 180.0
ENDS = (EOFError, OSError)


def queues(node: NodeProcess) -> Any:
    """Return the contents of the node's own replica by queue, without ages, which change with time."""
    rows = node.get_json("/v1/queues")["queues"]
    return [
        {key: value for key, value in row.items() if key not in {"oldest_age_s", "push_rate", "pull_rate"}}
        for row in rows
    ]


def in_step(cluster: Cluster, nodes: Sequence[NodeProcess] | None = None) -> None:
    """Wait until these nodes (default: all running ones) hold the same queues, up to the end of the leader's log."""
    chosen = list(nodes or cluster.alive)

    def same() -> bool:
        leader = cluster.leader(chosen)
        commit = leader.get_json("/v1/cluster")["commit_index"]
        applied = [node.get_json("/v1/cluster")["applied_index"] for node in chosen]
        return min(applied) >= commit and all(queues(node) == queues(leader) for node in chosen)

    wait_for(same, f"{[node.name for node in chosen]} are in step")


class Outage:
    """Per node one client that pushes and one that pulls, until their node ends or the block ends.

    Half of the pulled messages are settled at once, the other half after the outage.
    """

    def __init__(self, nodes: Sequence[NodeProcess], queue: str) -> None:
        self.pushed, self.stocked = queue + "-pushed", queue + "-stock"
        self.sent: set[bytes] = set()
        self.acknowledged: list[bytes] = []
        self.kept: dict[bytes, int] = {}
        self.settled: list[int] = []
        self.unsure: set[int] = set()
        self._problems: list[BaseException] = []
        self._stop = threading.Event()
        self._pullers = len(nodes)
        with Rpc(nodes[0].rpc, DEADLINE_S) as rpc:
            rpc.call("update_props", self.stocked, {"timeout": LEASE_S, "retry": 3})
            rpc.call("push_many", self.stocked, list(range(STOCK)))
        self._threads = [self._thread(work, node) for node in nodes for work in (self._push, self._pull)]

    def _thread(self, work: Callable[[Rpc, str], None], node: NodeProcess) -> threading.Thread:
        def run() -> None:
            try:
                with Rpc(node.rpc, DEADLINE_S) as rpc:
                    work(rpc, node.name)
            except ENDS:
                # The test has ended the node.
                return
            except BaseException as exc:  # noqa: BLE001 - reported where the block ends
                self._problems.append(exc)

        return threading.Thread(target=run)

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()
        if kind is None and self._problems:
            raise self._problems[0]

    def progress(self, pushes: int = 500, deliveries: int = 100) -> None:
        """Wait for this many more pushes and deliveries."""
        acknowledged, settled = len(self.acknowledged) + pushes, len(self.settled) + deliveries
        wait_for(lambda: len(self.acknowledged) >= acknowledged and len(self.settled) >= settled, "progress")

    def _push(self, rpc: Rpc, name: str) -> None:
        under_way: dict[int, bytes] = {}
        number = 0
        while not self._stop.is_set():
            while len(under_way) < WINDOW:
                content = f"{name}-{number}".encode()
                number += 1
                self.sent.add(content)
                under_way[rpc.ask("push", self.pushed, content)] = content
            reply = rpc.read()
            content = under_way.pop(reply.msgid)
            if _ended(reply):
                return
            self.acknowledged.append(content)

    def _pull(self, rpc: Rpc, _name: str) -> None:
        while not self._stop.is_set():
            pulled = rpc.ask("pull_many", self.stocked, PULLED_AT_ONCE * 2, 0.2)
            reply = rpc.read()
            assert reply.msgid == pulled
            if _ended(reply):
                return
            keep, settle = reply.result[::2], reply.result[1::2]
            self.kept |= {message[b"id"]: message[b"content"] for message in keep}
            contents = [message[b"content"] for message in settle]
            self.unsure |= set(contents)
            rpc.ask("done_many", self.stocked, [message[b"id"] for message in settle])
            reply = rpc.read()
            if _ended(reply):
                return
            assert all(reply.result), reply
            self.settled += contents
            self.unsure -= set(contents)

    def check(self, node: NodeProcess) -> None:
        """Check through `node` that everything acknowledged is there once, leases and ids hold, and nothing settled is
        redelivered.
        """
        with Rpc(node.rpc, DEADLINE_S) as rpc:
            self._check_pushes(_drained(rpc, self.pushed))
            leased = next(queue["leased"] for queue in queues(node) if queue["name"] == self.stocked)
            assert all(rpc.call("done_many", self.stocked, list(self.kept))), "a lease did not survive"
            left = next(queue["leased"] for queue in queues(node) if queue["name"] == self.stocked)
            assert leased - left == len(self.kept)
            self._check_stock(_drained(rpc, self.stocked), left)

    def _check_pushes(self, found: list[bytes]) -> None:
        counts = Counter(found)
        lost = set(self.acknowledged) - set(counts)
        assert not lost, f"{len(lost)} acknowledged messages are lost, such as {sorted(lost)[:5]}"
        twice = [content for content, count in counts.items() if count > 1]
        assert not twice, f"{len(twice)} messages are there more than once, such as {sorted(twice)[:5]}"
        assert set(counts) <= self.sent

    def _check_stock(self, found: list[int], leased: int) -> None:
        counts = Counter(found)
        assert not [content for content, count in counts.items() if count > 1]
        again = set(counts) & (set(self.settled) | set(self.kept.values()))
        assert not again, f"settled or leased messages were redelivered: {sorted(again)[:5]}"
        # Messages that are neither there nor accounted for were delivered in a lost answer, or settled without one.
        missing = set(range(STOCK)) - set(counts) - set(self.settled) - set(self.kept.values()) - self.unsure
        assert len(missing) <= leased <= self._pullers * PULLED_AT_ONCE * 2, (len(missing), leased)


def _drained(rpc: Rpc, queue: str) -> list[Any]:
    contents: list[Any] = []
    while messages := rpc.call("pull_many", queue, 1000, 0):
        contents += [message[b"content"] for message in messages]
        assert all(rpc.call("done_many", queue, [message[b"id"] for message in messages]))
    return contents


def _ended(reply: Reply) -> bool:
    """Return whether the node said that it is stopping; any other error is a failure."""
    if reply.error is None:
        return False
    assert reply.error.startswith((b"shutting_down", b"unknown_outcome", b"no_leader")), reply.error
    return True
