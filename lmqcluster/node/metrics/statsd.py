"""Metrics of queues as LMQ sent them to StatsD: what happens through this node, by UDP, sent and forgotten.

Every second ``PREFIX.NAME.push:N|c`` and ``.pull:N|c`` of the queues where something happened, and ``.retention:X|ms`` of the
first deliveries of that second, in milliseconds; at longer intervals the gauges ``.size:N|g`` and ``.memory:N|g`` of all queues.
LMQ sent every other event by itself with a rate of one half; a StatsD server makes the same sums of these. Deliveries of batch
leases are not among them.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import structlog

from ...core import Machine, Op, PushFlag
from ...core.commands import COPIES, PULLS, Command, Delivered, Fault
from ...core.notices import Notice, Pushed
from ...core.transactions import single_commands
from ...core.waiting_push_commands import Waits
from ...wire.address import Address
from ..memory import MESSAGE_OVERHEAD_BYTES

__all__ = ["StatsdSender"]

log = structlog.get_logger("lmq.statsd")

FLUSH_S: Final = 1.0
RESOLVE_S: Final = 60.0
DATAGRAM_BYTES_MAX: Final = 1432
"""What fits into an Ethernet frame."""
RETENTIONS_MAX: Final = 20
"""Retention times of one queue that are sent for one second."""
DATAGRAMS_PER_TURN: Final = 50
QUEUES_PER_TURN: Final = 500
_SEPARATORS: Final = bytes.maketrans(b":|@" + bytes(range(0x21)) + b"\x7f", b"_" * 37)
_PUSHES: Final = frozenset((Op.PUSH, Op.PUSH_ITEMS))
_RICH_PUSHES: Final = frozenset((Op.PUSH_TRAITS, Op.PUSH_EXISTING, Op.PUSH_OR_WAIT))


class StatsdSender:
    """Counts what happens through this node, and sends it. Never waits, and never fails the node.

    Attributes:
        sent_total, dropped_total: datagrams.
    """

    def __init__(self, address: Address, prefix: str, gauges_s: int, machine: Callable[[], Machine]) -> None:
        """Send nothing yet.

        Args:
            address: of the StatsD server.
            prefix: what names begin with, before the queue's.
            gauges_s: seconds between gauges, 0 for none.
            machine: returns the local replica's machine.
        """
        self.sent_total = 0
        self.dropped_total = 0
        self._address = address
        self._prefix = prefix.encode()
        self._gauges_s = gauges_s
        self._machine = machine
        self._pushed: Counter[bytes] = Counter()
        self._pulled: Counter[bytes] = Counter()
        self._retention: dict[bytes, list[float]] = {}
        self._socket: socket.socket | None = None
        self._resolved_s = -RESOLVE_S
        self._said = ""

    def batch_applied(
        self, now_us: int, commands: Iterable[Command], results: Iterable[Any], notices: Iterable[Notice] = ()
    ) -> None:
        """Count what a batch of this node did."""
        for notice in notices:
            if isinstance(notice, Pushed) and not isinstance(notice.result, Fault):
                self._count_pushes(notice.queue, notice.result)
        for command, result in single_commands(commands, results):
            op = command[0]
            if not result:
                continue
            if op in _PUSHES:
                self._pushed[command[1]] += sum(flag < PushFlag.REPLAYED for flag in result)
            elif op in _RICH_PUSHES:
                if not isinstance(result, Waits):
                    self._count_pushes(command[1], result)
            elif op == Op.PUSH_MARKED:
                self._pushed[command[1]] += result
            elif op in COPIES:
                self._pushed.update(name for name, flag in result if flag < PushFlag.REPLAYED)
            elif op in PULLS:
                self._count_deliveries(now_us, result)

    def _count_pushes(self, name: bytes, stored: Iterable[tuple[int, int]]) -> None:
        self._pushed[name] += sum(flag < PushFlag.REPLAYED for flag, _sequence in stored)

    def _count_deliveries(self, now_us: int, delivered: list[Delivered]) -> None:
        for name, _number, _remaining, message in delivered:
            self._pulled[name] += 1
            waits = self._retention.setdefault(name, [])
            if len(waits) < RETENTIONS_MAX:
                waits.append(max(0, now_us - message.ready_us) / 1e3)

    async def run(self) -> None:
        """Send until cancelled."""
        loop = asyncio.get_running_loop()
        gauges_at_s = loop.time()
        try:
            while True:
                await asyncio.sleep(FLUSH_S)
                await self._resolve()
                await self._send(self._take_counts())
                if self._gauges_s and loop.time() >= gauges_at_s:
                    gauges_at_s = loop.time() + self._gauges_s
                    await self._send_gauges()
        finally:
            if self._socket is not None:
                self._socket.close()

    def _take_counts(self) -> Iterator[bytes]:
        pushed, pulled, retention = self._pushed, self._pulled, self._retention
        self._pushed, self._pulled, self._retention = Counter(), Counter(), {}
        yield from (self._line(name, b"push:%d|c" % count) for name, count in pushed.items())
        yield from (self._line(name, b"pull:%d|c" % count) for name, count in pulled.items())
        for name, waits in retention.items():
            yield from (self._line(name, b"retention:%.2f|ms" % wait_ms) for wait_ms in waits)

    async def _send_gauges(self) -> None:
        queues = list(self._machine().queues.values())
        for start in range(0, len(queues), QUEUES_PER_TURN):
            lines: list[bytes] = []
            for queue in queues[start : start + QUEUES_PER_TURN]:
                memory = queue.body_bytes + MESSAGE_OVERHEAD_BYTES * len(queue)
                lines.append(self._line(queue.name, b"size:%d|g" % len(queue)))
                lines.append(self._line(queue.name, b"memory:%d|g" % memory))
            await self._send(lines)
            await asyncio.sleep(0)

    def _line(self, queue: bytes, rest: bytes) -> bytes:
        # LMQ sent names as they are; what would end a name early makes a line that servers misread.
        return b"%b.%b.%b" % (self._prefix, queue.translate(_SEPARATORS), rest)

    # --- the network ----------------------------------------------------------------------------------------------

    async def _resolve(self) -> None:
        """Look up where to send to: once for an address in digits, now and then for a name."""
        loop = asyncio.get_running_loop()
        if loop.time() - self._resolved_s < RESOLVE_S or (self._socket is not None and self._is_literal()):
            return
        self._resolved_s = loop.time()
        try:
            found = await loop.getaddrinfo(self._address.host, self._address.port, type=socket.SOCK_DGRAM)
            family, kind, protocol, _name, where = found[0]
            fresh = socket.socket(family, kind, protocol)
            fresh.setblocking(False)
            fresh.connect(where)
        except OSError as exc:
            if str(exc) != self._said:
                self._said = str(exc)
                log.warning("cannot send metrics to StatsD", address=str(self._address), reason=self._said)
            return
        self._said = ""
        if self._socket is not None:
            self._socket.close()
        self._socket = fresh

    def _is_literal(self) -> bool:
        try:
            ipaddress.ip_address(self._address.host)
        except ValueError:
            return False
        return True

    async def _send(self, lines: Iterable[bytes]) -> None:
        for place, datagram in enumerate(_datagrams(lines)):
            if place % DATAGRAMS_PER_TURN == DATAGRAMS_PER_TURN - 1:
                await asyncio.sleep(0)
            self._send_one(datagram)

    def _send_one(self, datagram: bytes) -> None:
        if self._socket is None:
            self.dropped_total += 1
            return
        try:
            self._socket.send(datagram)
        except OSError:
            # Nobody listens, or the buffer is full: the node has better things to do.
            self.dropped_total += 1
        else:
            self.sent_total += 1


def _datagrams(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Lines, as many together as one datagram takes."""
    together: list[bytes] = []
    size = 0
    for line in lines:
        if together and size + len(line) > DATAGRAM_BYTES_MAX:
            yield b"\n".join(together)
            together, size = [], 0
        together.append(line)
        size += len(line) + 1
    if together:
        yield b"\n".join(together)
