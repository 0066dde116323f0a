"""A client that uses the cluster correctly while others do not, and records the promises that it got."""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections.abc import Sequence

from tests.integration.cluster import NodeProcess
from tests.integration.raw_http import call
from tests.integration.raw_rpc import Rpc, RpcError

__all__ = ["Honest"]

QUEUE = "Account of an honest client"
LEASE_S = 20
PATIENCE_S = 60.0
"""A slower request counts as not served."""


class Honest(threading.Thread):
    """Pushes, pulls and acknowledges through all nodes in turn, over RPC and HTTP, until `stop`.

    Attributes:
        pushed: contents whose push was acknowledged.
        delivered: contents that were delivered.
        slowest_s: the duration of the slowest request.
        problem: the first error, None without one.
    """

    def __init__(self, nodes: Sequence[NodeProcess], token: str | None) -> None:
        super().__init__(name="honest client")
        self.pushed: set[bytes] = set()
        self.delivered: set[bytes] = set()
        self.slowest_s = 0.0
        self.problem: BaseException | None = None
        self._nodes = list(nodes)
        self._token = token
        self._done = threading.Event()
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}

    def prepare(self) -> None:
        """Create the queue, so that default properties of others do not affect it."""
        with self._connect(self._nodes[0]) as rpc:
            rpc.call("update_props", QUEUE, {"retry": 1_000_000, "timeout": LEASE_S, "pack": 0})

    def _connect(self, node: NodeProcess) -> Rpc:
        rpc = Rpc(node.rpc, PATIENCE_S)
        if self._token is not None:
            rpc.call("auth", self._token)
        return rpc

    def run(self) -> None:
        """Work until `stop`, or until an error occurs."""
        with contextlib.ExitStack() as stack:
            try:
                rpcs = [stack.enter_context(self._connect(node)) for node in self._nodes]
                for number in itertools.count():
                    if self._done.is_set():
                        return
                    self._round(rpcs, number)
            except BaseException as exc:  # noqa: BLE001 - reported by the campaign
                self.problem = exc

    def stop(self) -> None:
        """Stop working."""
        self._done.set()
        self.join()

    def _round(self, rpcs: list[Rpc], number: int) -> None:
        count = len(rpcs)
        content = b"honest %d" % number
        began_s = time.monotonic()
        if number % 4 == 3:
            node = self._nodes[number % count]
            headers = {**self._headers, "Content-Type": "application/x-msgpack"}
            packed = bytes((0xA0 | len(content),)) + content
            answer = call(node.http, "POST", f"/messages/{QUEUE.replace(' ', '%20')}", packed, headers)
            if answer.status != 200:
                raise AssertionError(f"unexpected answer to a push over HTTP: {answer.status} {answer.body[:200]!r}")
        else:
            rpcs[number % count].call("push", QUEUE, content)
        self.pushed.add(content)
        self.slowest_s = max(self.slowest_s, time.monotonic() - began_s)
        self.take(rpcs[(number + 1) % count], rpcs[(number + 2) % count])

    def take(self, puller: Rpc, settler: Rpc) -> bool:
        """Pull one message, if there is one, and acknowledge it through another node; return whether there was one."""
        began_s = time.monotonic()
        message = puller.call("pull", QUEUE, 0)
        self.slowest_s = max(self.slowest_s, time.monotonic() - began_s)
        if message == b"empty":
            return False
        if isinstance(message[b"content"], bytes):
            self.delivered.add(message[b"content"])
        # On a busy machine the lease may have expired: then the message is redelivered.
        with contextlib.suppress(RpcError):
            settler.call("done", QUEUE, message[b"id"])
        return True

    def settle(self) -> set[bytes]:
        """Drain the queue; return acknowledged pushes that were never delivered."""
        with contextlib.ExitStack() as stack:
            rpcs = [stack.enter_context(self._connect(node)) for node in self._nodes]
            end_s = time.monotonic() + PATIENCE_S
            while time.monotonic() < end_s:
                if not self.take(rpcs[0], rpcs[-1]):
                    if not self.pushed - self.delivered:
                        break
                    # Other clients may hold leases, which expire.
                    time.sleep(0.2)
        return self.pushed - self.delivered
