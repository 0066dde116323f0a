"""A well-behaved client that runs beside misbehaving ones and reports every error that it sees."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

from .cluster import NodeProcess
from .patience import error_text, patiently
from .raw_http import call
from .raw_rpc import Rpc, RpcError

__all__ = ["Canary", "peak_rss_bytes", "reset_peak_rss", "rss_bytes"]


class Canary:
    """Pushes, pulls and settles messages through each node in turn, over both APIs, until the block ends.

    Leaving the block fails if an unexpected answer arrived, or if nothing was done.

    Attributes:
        rounds: completed rounds; a round is a push, a pull and a reply through each node.
        slowest_s: the duration of the slowest request.
    """

    _names = itertools.count(1)

    def __init__(self, nodes: Sequence[NodeProcess]) -> None:
        self.rounds = 0
        self.slowest_s = 0.0
        self._nodes = list(nodes)
        self._queue = f"canary-{next(self._names)}"
        self._stop = threading.Event()
        self._problem: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="canary")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        if kind is None:
            assert self._problem is None, f"the canary died: {self._problem!r}"
            assert self.rounds > 0, "the canary never got to sing"

    def check(self) -> None:
        """Fail if an error occurred, and wait until the canary has completed a whole new round."""
        rounds = self.rounds
        while self.rounds < rounds + 2 and self._problem is None:
            self._stop.wait(0.005)
        assert self._problem is None, f"the canary died: {self._problem!r}"

    def _run(self) -> None:
        try:
            rpcs = [Rpc(node.rpc) for node in self._nodes]
            try:
                while not self._stop.is_set():
                    try:
                        self._round(rpcs)
                        self.rounds += 1
                    except _UnknownError:
                        # Messages of an abandoned round stay in its queue.
                        self._queue = f"canary-{next(self._names)}"
            finally:
                for connection in rpcs:
                    connection.close()
        except BaseException as exc:  # noqa: BLE001 - reported where the block ends
            self._problem = exc

    def _round(self, rpcs: list[Rpc]) -> None:
        shifted = rpcs[1:] + rpcs[:1]
        for rpc, other in zip(rpcs, shifted, strict=True):
            content = f"{self.rounds}"
            self._timed(rpc.call, b"ok", "push", self._queue, content)
            message = self._timed(other.call, None, "pull", self._queue, 50)
            assert (message[b"content"], message[b"retry"]) == (content.encode(), 2), message
            self._timed(rpc.call, b"ok", "done", self._queue, message[b"id"])
        # HTTP connections are closed after 5 idle seconds, so each round opens new ones.
        path = f"/messages/{self._queue}-http"
        for node, other_node in zip(self._nodes, self._nodes[1:] + self._nodes[:1], strict=True):
            assert self._timed(call, None, node.http, "POST", path, b"x").status == 200, "push over HTTP"
            answer = self._timed(call, None, other_node.http, "GET", f"{path}?t=50")
            assert (answer.status, answer.body) == (200, b"x"), answer
            reply = f"{path}/{answer['x-lmq-message-id'].decode()}?reply=ack"
            assert self._timed(call, None, node.http, "POST", reply).status == 204, "ack over HTTP"

    def _timed(self, function, wanted, *arguments):
        started_s = time.monotonic()
        try:
            result = patiently(function, *arguments)
        except RpcError as exc:
            _give_up_if_unknown(exc)
            raise
        _give_up_if_unknown(result)
        self.slowest_s = max(self.slowest_s, time.monotonic() - started_s)
        assert wanted is None or result == wanted, f"{arguments}: {result!r} instead of {wanted!r}"
        return result


class _UnknownError(Exception):
    """The request took longer than the cluster lets a client wait; the canary abandons the round and begins another."""


def _give_up_if_unknown(result: Any) -> None:
    if error_text(result).startswith(b"unknown_outcome"):
        raise _UnknownError


def _status_bytes(node: NodeProcess, field: str) -> int:
    with open(f"/proc/{node.pid}/status", encoding="ascii") as lines:  # noqa: PTH123 - not a file of ours
        return next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:")) * 1024


def rss_bytes(node: NodeProcess) -> int:
    """Return the resident memory of the node."""
    return _status_bytes(node, "VmRSS")


def peak_rss_bytes(node: NodeProcess) -> int:
    """Return the peak of the node's resident memory since `reset_peak_rss`."""
    return _status_bytes(node, "VmHWM")


def reset_peak_rss(node: NodeProcess) -> int:
    """Reset the peak; return the resident memory."""
    with open(f"/proc/{node.pid}/clear_refs", "w", encoding="ascii") as file:  # noqa: PTH123
        file.write("5")
    return rss_bytes(node)
