"""Clients that push and pull through given nodes while others fail, and the invariants of their results."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

from .cluster import NodeProcess, wait_for
from .raw_rpc import Reply, Rpc

__all__ = ["Load"]

WINDOW = 32
"""Number of pushes in flight per client."""
IDLE_PULL_S = 0.2
DEADLINE_S = 180.0


class Load:
    """Per node one client that pushes, a window at a time, and one that pulls and settles; until the block ends.

    Leaving the block stops pushing, lets the pullers drain the queue, and fails if any client saw an error.

    Attributes:
        acknowledged: contents whose push succeeded.
        delivered: (content, retry) of every delivery.
        pause_s: the longest time that a client waited for the answer to a push.
    """

    def __init__(self, nodes: Sequence[NodeProcess], queue: str, body: bytes = b"") -> None:
        self.acknowledged: list[bytes] = []
        self.delivered: list[tuple[bytes, int]] = []
        self.pause_s = 0.0
        self._queue = queue
        self._body = body
        self._stop_pushing = threading.Event()
        self._stop_pulling = threading.Event()
        self._problems: list[BaseException] = []
        self._pushers = [self._thread(self._push, node) for node in nodes]
        self._pullers = [self._thread(self._pull, node) for node in nodes]

    def _thread(self, work: Callable[[str, str], None], node: NodeProcess) -> threading.Thread:
        def run() -> None:
            try:
                work(node.rpc, node.name)
            except BaseException as exc:  # noqa: BLE001 - reported where the block ends
                exc.add_note(f"{work.__name__} through {node.name}")
                self._problems.append(exc)

        return threading.Thread(target=run, name=f"{work.__name__} {node.name}")

    def __enter__(self) -> Self:
        for thread in [*self._pushers, *self._pullers]:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop_pushing.set()
        for thread in self._pushers:
            thread.join()
        self._stop_pulling.set()
        for thread in self._pullers:
            thread.join()
        if kind is None:
            self.check()

    def check(self) -> None:
        """Fail if a client saw an error."""
        if self._problems:
            raise self._problems[0]

    def progress(self, count: int = 500) -> None:
        """Wait until healthy clients got `count` more acknowledged pushes and deliveries."""
        acknowledged, delivered = len(self.acknowledged) + count, len(self.delivered) + count

        def enough() -> bool:
            self.check()
            return len(self.acknowledged) >= acknowledged and len(self.delivered) >= delivered

        wait_for(enough, f"{count} more pushes and deliveries", DEADLINE_S)

    def check_exactly_once(self) -> None:
        """Check that every acknowledged message was delivered once, at its first delivery, and no other."""
        counts = Counter(content for content, _retry in self.delivered)
        lost = set(self.acknowledged) - set(counts)
        assert not lost, f"{len(lost)} acknowledged messages were never delivered, such as {sorted(lost)[:5]}"
        twice = [content for content, count in counts.items() if count > 1]
        assert not twice, f"{len(twice)} messages were delivered more than once, such as {sorted(twice)[:5]}"
        charged = [content for content, retry in self.delivered if retry != 2]
        assert not charged, f"{len(charged)} messages were charged for a lost delivery, such as {charged[:5]}"
        unknown = set(counts) - set(self.acknowledged)
        assert not unknown, f"{len(unknown)} delivered messages were never pushed, such as {sorted(unknown)[:5]}"

    def _push(self, address: str, name: str) -> None:
        with Rpc(address, DEADLINE_S) as rpc:
            under_way: dict[int, tuple[bytes, float]] = {}
            number = 0
            while under_way or not self._stop_pushing.is_set():
                while len(under_way) < WINDOW and not self._stop_pushing.is_set():
                    content = f"{name}-{number}".encode()
                    number += 1
                    under_way[rpc.ask("push", self._queue, content + self._body)] = (content, time.monotonic())
                reply = _good(rpc.read())
                content, sent_s = under_way.pop(reply.msgid)
                assert reply.result == b"ok", reply
                self.acknowledged.append(content)
                self.pause_s = max(self.pause_s, time.monotonic() - sent_s)

    def _pull(self, address: str, _name: str) -> None:
        with Rpc(address, DEADLINE_S) as rpc:
            settling: deque[int] = deque()
            while True:
                last_round = self._stop_pulling.is_set()
                pull = rpc.ask("pull_many", self._queue, WINDOW, IDLE_PULL_S)
                while (reply := _good(rpc.read())).msgid != pull:
                    settling.remove(reply.msgid)
                    assert all(reply.result), "the lease of a message just delivered was not there"
                if reply.result:
                    cut = len(self._body)
                    self.delivered += [(m[b"content"][: len(m[b"content"]) - cut], m[b"retry"]) for m in reply.result]
                    settling.append(rpc.ask("done_many", self._queue, [m[b"id"] for m in reply.result]))
                elif last_round:
                    break
            for _ in range(len(settling)):
                assert all(_good(rpc.read()).result)


def _good(reply: Reply) -> Reply:
    assert reply.error is None, f"a client got the error {reply.error!r}"
    return reply
