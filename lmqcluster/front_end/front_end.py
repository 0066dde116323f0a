"""The front end: accepts connections once the node has counted them, and carries out what the node says."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import socket
from functools import partial
from typing import Any, Final

import structlog

from ..node.access.tls import ServerTls, handshake
from ..ports.acceptor import Acceptor
from ..ports.front_ends.channel import Channel, Operation
from ..wire.repeats import pattern_of
from .client_connection import ClientConnection

__all__ = ["FrontEnd"]

log = structlog.get_logger("lmq.front_end")

ACCEPTS_PER_TURN: Final = 2
"""Few, so that the front ends of a node share a burst of connections."""
UNCOUNTED_MAX: Final = 16
"""Accepted connections that the node has not counted yet."""
OTHER_DESCRIPTORS: Final = 32
"""Descriptors that are no connections: listening sockets, the channel, those of Python."""
LAST_ANSWERS_S: Final = 1.0
"""How long clients may take to read their last answers after the node has ended."""

_WRITE, _RETIRE, _ANSWERS = int(Operation.WRITE), int(Operation.RETIRE), int(Operation.ANSWERS)


class FrontEnd:
    """One front-end process.

    Attributes:
        ended: set when the node has closed the channel.
    """

    def __init__(self, tls: ServerTls | None) -> None:
        self._tls = tls
        self._channel = Channel(self._receive, self._node_ended, self._channel_drained)
        self._acceptors: dict[int, Acceptor] = {}
        # Sockets that the node has not counted yet, and those that are being opened.
        self._accepted: dict[int, tuple[socket.socket, bool]] = {}
        self._opening: dict[int, socket.socket] = {}
        self._connections: dict[int, ClientConnection] = {}
        self._last_number = 0
        self._connections_max = resource.getrlimit(resource.RLIMIT_NOFILE)[0] - OTHER_DESCRIPTORS
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_paused = False
        self._is_empty = asyncio.Event()
        self.ended = asyncio.Event()

    async def start(self, channel: socket.socket, ports: list[Any]) -> None:
        """Connect to the node and accept clients."""
        await asyncio.get_running_loop().create_connection(lambda: self._channel, sock=channel)
        for number, name, descriptors, is_tls in ports:
            sockets = [socket.socket(fileno=descriptor) for descriptor in descriptors]
            accept = partial(self._accept, number, is_tls=is_tls)
            self._acceptors[number] = Acceptor(name, sockets, ACCEPTS_PER_TURN, accept)

    async def finish(self) -> None:
        """Close all connections after their last answers."""
        for acceptor in self._acceptors.values():
            acceptor.close()
        self._is_empty.clear()
        for connection in list(self._connections.values()):
            connection.finish()
        if self._connections:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._is_empty.wait(), LAST_ANSWERS_S)

    def _choose_accepting(self) -> None:
        """Pause accepting while a limit is reached. The node may have counted out connections that are not closed yet."""
        open_here = len(self._accepted) + len(self._opening) + len(self._connections)
        is_paused = len(self._accepted) >= UNCOUNTED_MAX or open_here >= self._connections_max
        if is_paused != self._is_paused:
            self._is_paused = is_paused
            for acceptor in self._acceptors.values():
                acceptor.pause() if is_paused else acceptor.resume()

    # --- clients ------------------------------------------------------------------------------------------------------

    def _accept(self, port: int, accepted: socket.socket, address: object, *, is_tls: bool) -> None:
        self._last_number = number = self._last_number + 1
        self._accepted[number] = accepted, is_tls
        self._channel.send(Operation.OPEN, number, [port, address])
        self._choose_accepting()

    async def _open(self, number: int, accepted: socket.socket, *, is_tls: bool) -> None:
        connection = ClientConnection(self._channel, number, self._made, self._lost)
        tls = handshake(self._tls) if is_tls else {}
        try:
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await asyncio.get_running_loop().connect_accepted_socket(lambda: connection, accepted, **tls)
        except OSError as exc:
            accepted.close()
            self._channel.send(Operation.FAILED, number, str(exc))
        finally:
            del self._opening[number]
            self._choose_accepting()

    def _made(self, number: int, connection: ClientConnection) -> None:
        self._connections[number] = connection

    def _lost(self, number: int) -> None:
        del self._connections[number]
        self._choose_accepting()
        if not self._connections:
            self._is_empty.set()

    def _channel_drained(self) -> None:
        for connection in self._connections.values():
            connection.channel_drained()

    # --- the node -----------------------------------------------------------------------------------------------------

    def _receive(self, frame: list[Any]) -> None:
        each, connections = iter(frame), self._connections
        for operation, number, value in zip(each, each, each, strict=True):
            connection = connections.get(number)
            if operation >= _ANSWERS:
                self._take_answers(operation, value)
            elif connection is None or operation >= _RETIRE:
                self._carry_out(operation, number)
            else:
                try:
                    if operation == _WRITE:
                        connection.write(value)
                    else:
                        _carry_out(connection, operation, value)
                except Exception:
                    # It must not end the other connections.
                    log.exception("connection failed")
                    connection.abort()

    def _take_answers(self, operation: int, value: list[Any]) -> None:
        """Take the outcome of repeated requests, whose clients may have disconnected, or a ping."""
        if operation == Operation.PING:
            self._channel.send(operation, 0)
            return
        numbers, *answer = value if operation == _ANSWERS else (value,)
        for number in numbers:
            if (connection := self._connections.get(number)) is not None:
                try:
                    connection.answer(*answer) if answer else connection.send_in_full()
                except Exception:
                    log.exception("connection failed")
                    connection.abort()

    def _carry_out(self, operation: int, number: int) -> None:
        """Carry out an operation that needs no open connection."""
        if operation == Operation.ADMIT:
            accepted, is_tls = self._accepted.pop(number)
            self._opening[number] = accepted
            task = asyncio.get_running_loop().create_task(self._open(number, accepted, is_tls=is_tls))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            self._choose_accepting()
        elif operation == Operation.ABORT:
            self._refuse(number)
        elif operation == Operation.RETIRE:
            if number in self._acceptors:
                self._acceptors.pop(number).close()
        elif operation == Operation.RELOAD and self._tls is not None:
            try:
                self._tls.reload()
            except (OSError, ValueError) as exc:
                log.error("cannot reload the certificate, keeping the old one", reason=str(exc))  # noqa: TRY400  no bug of ours

    def _refuse(self, number: int) -> None:
        """End a connection that is not open yet."""
        if number in self._accepted:
            accepted, _is_tls = self._accepted.pop(number)
            accepted.close()
            self._choose_accepting()
        elif number in self._opening:
            # It ends the handshake, whose task closes the socket.
            with contextlib.suppress(OSError):
                self._opening[number].shutdown(socket.SHUT_RDWR)

    def _node_ended(self) -> None:
        self.ended.set()


def _carry_out(connection: ClientConnection, operation: int, value: Any) -> None:
    if operation == Operation.TAKEN:
        connection.taken(value)
    elif operation == Operation.CLOSE:
        connection.close()
    elif operation == Operation.ABORT:
        connection.abort()
    elif operation == Operation.PAUSE:
        connection.set_paused(is_paused=True)
    elif operation == Operation.RESUME:
        connection.set_paused(is_paused=False)
    elif operation == Operation.REPEAT:
        group, *pattern = value
        connection.repeat(group, pattern_of(pattern))
    elif operation == Operation.WRITE_END:
        connection.write_end()
    elif operation == Operation.ACKNOWLEDGE:
        connection.report_acknowledgement()
