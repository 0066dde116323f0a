"""A correct client of Kestrel while others misbehave, which records the promises that it got."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Sequence

from tests.integration.cluster import NodeProcess
from tests.integration.kestrel_ports import Lines

__all__ = ["HonestKestrel"]

QUEUE = b"honest-client-of-kestrel"
END = b"END\r\n"


class HonestKestrel(threading.Thread):
    """Puts through one node, and opens and closes through another one, until `stop`.

    Attributes:
        closed: items whose close was acknowledged.
        slowest_s: the duration of the slowest request.
        problem: the first error, None without one.
    """

    def __init__(self, nodes: Sequence[NodeProcess]) -> None:
        super().__init__(name="honest client of Kestrel")
        self.closed = 0
        self.slowest_s = 0.0
        self.problem: BaseException | None = None
        self._nodes = list(nodes)
        self._done = threading.Event()

    def run(self) -> None:
        """Work until `stop`, or until an error occurs."""
        connections: list[Lines] = []
        try:
            connections += [Lines(node) for node in self._nodes]
            for number in itertools.count():
                if self._done.is_set():
                    return
                self._round(connections, number)
        except BaseException as exc:  # noqa: BLE001 - reported by the campaign
            self.problem = exc
        finally:
            for one in connections:
                one.close()

    def _round(self, connections: list[Lines], number: int) -> None:
        producer, consumer = (connections[(number + more) % len(connections)] for more in (0, 1))
        item = b"%d" % number
        self._ask(producer, b"set %b 0 0 %d\r\n%b\r\n" % (QUEUE, len(item), item), b"STORED\r\n")
        # No other client uses the queue, so each item is the next one.
        answer = b"VALUE %b 0 %d\r\n%b\r\n%b" % (QUEUE, len(item), item, END)
        self._ask(consumer, b"get %b/t=60000/open\r\n" % QUEUE, answer)
        self._ask(consumer, b"get %b/close\r\n" % QUEUE, END)
        self.closed += 1

    def _ask(self, connection: Lines, request: bytes, answer: bytes) -> None:
        began_s = time.monotonic()
        connection.ask(request, answer)
        self.slowest_s = max(self.slowest_s, time.monotonic() - began_s)

    def stop(self) -> None:
        """Stop working."""
        self._done.set()
        self.join()
