"""A StatsD server, which receives lines by UDP without confirmation."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Iterable, Iterator
from typing import Final

import structlog

from ...net.loop import find
from ...wire.address import Address

__all__ = ["StatsdServer", "clean"]

log = structlog.get_logger("lmq.statsd")

RESOLVE_S: Final = 60.0
DATAGRAM_BYTES_MAX: Final = 1432
"""Payload that fits into an Ethernet frame."""
DATAGRAMS_PER_TURN: Final = 50
_SEPARATORS: Final = bytes.maketrans(b":|@" + bytes(range(0x21)) + b"\x7f", b"_" * 37)


def clean(name: bytes) -> bytes:
    """Replace the characters of a queue's name that would break the line format; LMQ sent names unchanged."""
    return name.translate(_SEPARATORS)


class StatsdServer:
    """Sender to a StatsD server. It never blocks the node and never makes it fail.

    Attributes:
        sent_total, dropped_total: numbers of datagrams.
    """

    def __init__(self, address: Address) -> None:
        self.sent_total = 0
        self.dropped_total = 0
        self._address = address
        self._socket: socket.socket | None = None
        self._resolved_s = -RESOLVE_S
        self._said = ""

    def close(self) -> None:
        """Close the socket."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    async def _resolve(self) -> None:
        """Resolve the address: once if it is an IP address, every `RESOLVE_S` if it is a name."""
        loop = asyncio.get_running_loop()
        if loop.time() - self._resolved_s < RESOLVE_S or (self._socket is not None and self._is_literal()):
            return
        self._resolved_s = loop.time()
        try:
            found = (await find(self._address.host))[0]
            fresh = socket.socket(found.family, socket.SOCK_DGRAM)
            fresh.setblocking(False)
            fresh.connect(found.at(self._address.port))
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

    async def send(self, lines: Iterable[bytes]) -> None:
        """Send lines, combined into datagrams."""
        await self._resolve()
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
            # The server does not listen, or the buffer is full. Metrics are not worth a retry.
            self.dropped_total += 1
        else:
            self.sent_total += 1


def _datagrams(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Combine lines into datagrams of at most `DATAGRAM_BYTES_MAX`."""
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
