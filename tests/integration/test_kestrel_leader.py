"""Published clients of all of Kestrel's protocols while the leader is killed."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field

import memcache
from pymemcache.client.base import Client as Pymemcache

from .cluster import Cluster, NodeProcess
from .kestrel_ports import TIMEOUT_S, Lines, address_of
from .test_kestrel_thrift import generated, loaded

WAIT_MS = 300
AUTO_ABORT_MS = 4_000
PAUSE_S = 0.05
BEFORE, AFTER = 5, 20
"""Number of items closed before the leader is killed, and number of items put after it is back."""


class Worker(ABC):
    """One client, with one connection."""

    def __init__(self, node: NodeProcess, queue: str) -> None:
        self.queue = queue
        self.stack = ExitStack()
        self.connect(node)

    @abstractmethod
    def connect(self, node: NodeProcess) -> None: ...

    @abstractmethod
    def put(self, item: bytes) -> bool:
        """Put an item; return whether it is certainly stored."""

    @abstractmethod
    def turn(self) -> tuple[bool, bytes | None]:
        """Close the open item and open the next; return whether the close is certain, and the next item."""


class Text(Worker):
    """The text protocol over a plain socket."""

    def connect(self, node: NodeProcess) -> None:
        self.lines = self.stack.enter_context(Lines(node, "text"))

    def _ask(self, request: bytes) -> bytes:
        self.lines.send(request)
        said = self.lines.until(b"\n")
        if not said.endswith(b"\n") or said.startswith(b"-"):
            raise ConnectionError(said)
        return said[:-1]

    def put(self, item: bytes) -> bool:
        return self._ask(b"put %b:\n%b\n\n" % (self.queue.encode(), item)) == b"+1"

    def turn(self) -> tuple[bool, bytes | None]:
        said = self._ask(b"get %b %d\n" % (self.queue.encode(), WAIT_MS))
        return True, None if said == b"*" else said[1:]


class Thrift(Worker):
    """Ids are global, so an item stays open until its timeout, even if the connection breaks."""

    make = staticmethod(generated)
    held = 0

    def connect(self, node: NodeProcess) -> None:
        self.client = self.stack.enter_context(self.make(node))

    def put(self, item: bytes) -> bool:
        return bool(self.client.put(self.queue, [item], 0) == 1)

    def turn(self) -> tuple[bool, bytes | None]:
        closed = bool(self.held) and self.client.confirm(self.queue, {self.held}) == 1
        self.held = 0
        found = self.client.get(self.queue, 1, WAIT_MS, AUTO_ABORT_MS)
        if not found:
            return closed, None
        self.held = found[0].id
        return closed, found[0].data


class ThriftPy(Thrift):
    """The same protocol with another library."""

    make = staticmethod(loaded)


class PymemcacheWorker(Worker):
    """Options of a get need the library's raw command."""

    def connect(self, node: NodeProcess) -> None:
        self.client = Pymemcache(address_of(node, "memcache"), connect_timeout=TIMEOUT_S, timeout=TIMEOUT_S)
        self.stack.callback(self.client.close)

    def put(self, item: bytes) -> bool:
        return bool(self.client.set(self.queue, item, noreply=False))

    def turn(self) -> tuple[bool, bytes | None]:
        said = self.client.raw_command(f"get {self.queue}/t={WAIT_MS}/close/open", "END\r\n")
        if said.startswith(b"VALUE "):
            return True, said.split(b"\r\n")[1]
        if said:
            raise ConnectionError(said)
        return True, None


class PythonMemcached(Worker):
    """The library returns a broken connection as an answer without an item, so the test has to check."""

    def connect(self, node: NodeProcess) -> None:
        self.client = memcache.Client(["{}:{}".format(*address_of(node, "memcache"))], socket_timeout=TIMEOUT_S)
        self.stack.callback(self.client.disconnect_all)

    def _check(self) -> None:
        if self.client.servers[0].socket is None:
            raise ConnectionError(self.client.servers[0])

    def put(self, item: bytes) -> bool:
        stored = bool(self.client.set(self.queue, item))
        self._check()
        return stored

    def turn(self) -> tuple[bool, bytes | None]:
        item = self.client.get(f"{self.queue}/t={WAIT_MS}/close/open")
        self._check()
        return True, item


@dataclass
class Run:
    """The answers that the two clients of a kind got."""

    kind: Callable[[NodeProcess, str], Worker]
    nodes: list[NodeProcess]
    is_back: threading.Event
    queue: str = "leader"
    stored: list[bytes] = field(default_factory=list)
    closed: list[bytes] = field(default_factory=list)
    unsure: set[bytes] = field(default_factory=set)
    breaks: int = 0
    under_way: threading.Event = field(default_factory=threading.Event)
    produced: threading.Event = field(default_factory=threading.Event)

    def produce(self) -> None:
        """Put items through one node after the other until some time after the leader is back."""
        client: Worker | None = None
        number = after = 0
        while after < AFTER:
            number += 1
            after += self.is_back.is_set()
            item = b"%d" % number
            try:
                client = client or self.kind(self.nodes[number % 3], self.queue)
                if client.put(item):
                    self.stored.append(item)
            except Exception:  # noqa: BLE001 - each library has its own; the item may be stored or not
                if client is not None:
                    client.stack.close()
                client = None
            time.sleep(PAUSE_S / 5)
        self.produced.set()
        if client is not None:
            client.stack.close()

    def consume(self) -> None:
        """Close each item, beginning at the first node, until all are closed."""
        client: Worker | None = None
        at, held = 0, None
        while not self.produced.is_set() or not {*self.stored} <= {*self.closed} | self.unsure:
            try:
                client = client or self.kind(self.nodes[at % 3], self.queue)
                is_closed, item = client.turn()
            except Exception:  # noqa: BLE001 - as above
                if client is not None:
                    client.stack.close()
                    self.breaks += 1
                if held is not None:
                    self.unsure.add(held)
                client, held, at = None, None, at + 1
                time.sleep(PAUSE_S)
                continue
            if held is not None and is_closed:
                self.closed.append(held)
            held = item
            if len(self.closed) >= BEFORE:
                self.under_way.set()
        if client is not None:
            client.stack.close()


def test_clients_of_every_protocol_lose_nothing_and_close_nothing_twice(kestrel_cluster: Cluster) -> None:
    leader = kestrel_cluster.leader()
    nodes = [leader, *(node for node in kestrel_cluster if node is not leader)]
    is_back = threading.Event()
    runs = [
        Run(kind, nodes, is_back, kind.__name__) for kind in (Text, Thrift, ThriftPy, PymemcacheWorker, PythonMemcached)
    ]
    threads = [threading.Thread(target=work, daemon=True) for run in runs for work in (run.produce, run.consume)]
    for thread in threads:
        thread.start()
    for run in runs:
        assert run.under_way.wait(TIMEOUT_S), run.queue
    leader.kill()
    leader.start()
    is_back.set()
    for thread in threads:
        thread.join(TIMEOUT_S)
    for run in runs:
        assert run.produced.is_set(), run.queue
        assert {*run.stored} <= {*run.closed} | run.unsure, run.queue
        assert len(run.closed) == len({*run.closed}), run.queue
        assert len(run.unsure) <= run.breaks, run.queue
        # Its consumer was connected to the leader.
        assert run.breaks, run.queue
        assert len(run.closed) >= BEFORE + AFTER // 2, run.queue
