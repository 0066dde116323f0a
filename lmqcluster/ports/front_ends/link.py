"""The node's end of the channel to one front-end process: its connections."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import structlog

from ..connection_limiter import ConnectionSlot
from ..ending import Ending
from .channel import Channel, Operation
from .relayed_port import RelayedPort
from .relayed_transport import RelayedTransport
from .repeats import Repeats

__all__ = ["Link"]

log = structlog.get_logger("lmq.ports")

_DATA, _REPEATS = int(Operation.DATA), int(Operation.REPEATS)


class Link:
    """The connections of one front-end process.

    Attributes:
        channel: leads to the process.
        pings: number of pings since the process last sent anything.
    """

    def __init__(self, ports: Mapping[int, RelayedPort]) -> None:
        self._ports = ports
        self.channel = Channel(self._receive, self._lost)
        self.pings = 0
        self._repeats = Repeats(self.channel)
        self._connections: dict[int, RelayedTransport] = {}
        self._opening: dict[int, tuple[RelayedPort, ConnectionSlot]] = {}

    def ping(self) -> None:
        """Ask the process for a sign of life."""
        self.pings += 1
        self.channel.send(Operation.PING, 0)

    def _receive(self, frame: list[Any]) -> None:
        self.pings = 0
        each, connections = iter(frame), self._connections
        for operation, number, value in zip(each, each, each, strict=True):
            if operation == _DATA:
                if (transport := connections.get(number)) is not None:
                    transport.received(value)
            else:
                try:
                    if operation == _REPEATS:
                        self._repeat(number, *value)
                    else:
                        self._carry_out(operation, number, value)
                except Exception:
                    log.exception("connection failed")

    def _repeat(self, group: int, numbers: list[int], bodies: list[Any]) -> None:
        try:
            self._repeats.received(group, numbers, bodies)
        except Exception:
            # Their clients would wait for answers.
            for number in numbers:
                if (transport := self._connections.get(number)) is not None:
                    transport.abort()
            raise

    def _carry_out(self, operation: int, number: int, value: Any) -> None:
        if operation == Operation.OPEN:
            self._open(number, value)
        elif operation == Operation.UP:
            self._connect(number)
        elif operation == Operation.FAILED:
            self._fail(number, value)
        elif operation == Operation.LOST:
            self._lose(number)
        elif (transport := self._connections.get(number)) is None:
            # The node has aborted the connection, and the front end does not know it yet.
            return
        elif operation == Operation.END:
            transport.received(None)
        elif operation == Operation.WRITTEN:
            transport.written(value)
        elif operation == Operation.ACKNOWLEDGED:
            transport.acknowledged(value)

    def _open(self, number: int, value: list[Any]) -> None:
        """Count a connection, before its front end reads from it or begins its TLS handshake."""
        port, (host, *rest) = self._ports.get(value[0]), value[1]
        slot = None if port is None else port.gate.enter((host.decode(), *rest))
        if port is None or slot is None:
            self.channel.send(Operation.ABORT, number)
            return
        slot.set_abort(partial(self._abort, number))
        self._opening[number] = port, slot
        self.channel.send(Operation.ADMIT, number)

    def _connect(self, number: int) -> None:
        if number not in self._opening:
            # The node has ended the connection while the front end opened it.
            self.channel.send(Operation.ABORT, number)
            return
        port, slot = self._opening.pop(number)
        protocol: Any = port.factory(slot)
        transport = RelayedTransport(self.channel, number, slot.address, protocol, self._repeats, is_tls=port.is_tls)
        self._connections[number] = transport
        slot.set_abort(transport.abort)
        try:
            protocol.connection_made(transport)
        except Exception:
            transport.abort()
            raise

    def _abort(self, number: int) -> None:
        self._opening.pop(number, None)
        self.channel.send(Operation.ABORT, number)

    def _fail(self, number: int, reason: bytes) -> None:
        if number in self._opening:
            _port, slot = self._opening.pop(number)
            slot.note(Ending.HANDSHAKE, reason.decode())
            slot.release()

    def _lose(self, number: int) -> None:
        if (transport := self._connections.pop(number, None)) is not None:
            transport.lost()
        elif number in self._opening:
            self._opening.pop(number)[1].release()

    def _lost(self) -> None:
        """End all connections, because the front end has ended."""
        for number in [*self._connections, *self._opening]:
            try:
                self._lose(number)
            except Exception:
                log.exception("connection failed")
