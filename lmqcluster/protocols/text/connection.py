"""A connection of a client of the text protocol. Requests are carried out one after another."""

from __future__ import annotations

from ...ports import ConnectionSlot, Ending
from ...wire.errors import LmqError, forget_frames
from ..kestrel.connection import READ_AHEAD_BYTES, KestrelConnection
from ..kestrel.port_context import PortContext
from .commands import COMMANDS
from .parser import Parser, Request

__all__ = ["TextConnection"]

_STAYS = frozenset(("bad_name", "bad_request", "forbidden", "suspended"))
"""Errors after which the connection stays open, because nothing was done."""
_TEXT_MAX = 400


class TextConnection(KestrelConnection):
    """Connection that reads text requests and carries them out in order."""

    def __init__(self, port: PortContext, place: ConnectionSlot) -> None:
        super().__init__(port, place)
        self._parser = Parser(port.node.config.message_bytes_max)

    def keep(self, data: bytes) -> None:
        """Buffer received data. While a large item is incomplete, only its size is checked."""
        arrived = self.arrived_bytes + len(data)
        item_bytes_max = self.port.node.config.message_bytes_max
        if self.is_waiting and READ_AHEAD_BYTES < arrived <= item_bytes_max and b"\n" not in data:
            self.pieces.add(data)
            self.wanted = arrived + 1
        else:
            super().keep(data)

    async def serve(self) -> None:
        """Carry out all complete requests."""
        parser = self._parser
        while (request := parser.next(self.buffer)) is not None:
            if self.port.is_rated:
                self.charge()
            await self._carry_out(request)
            await self.flushed()
        self.wanted = parser.wanted

    async def _carry_out(self, request: Request) -> None:
        found = COMMANDS.get(request.command)
        if found is None:
            if request.command and not request.command.isalpha():
                # A mistyped command consists of letters. Anything else is a header, TLS or TURN from a browser; a web page
                # could send commands next.
                raise LmqError("bad_request", "this is not Kestrel's text protocol")
            self._say_why(b"Unknown command: " + request.command)
            return
        try:
            queue = b"".join(request.arguments[:1])
            await self.noted(request.command.decode("ascii"), queue, found(self, request))
        except LmqError as exc:
            if exc.code not in _STAYS:
                raise
            self._say_why(exc.message.encode())
            forget_frames(exc)

    def _say_why(self, reason: bytes) -> None:
        self.write(b"-" + reason[:_TEXT_MAX].replace(b"\n", b" ") + b"\n")

    def refuse(self, error: LmqError) -> None:
        """Send one line with the reason."""
        if error.code in ("bad_request", "too_large"):
            self.place.note(Ending.BAD_REQUEST, error.message)
        self._say_why(f"{error.code}: {error.message}".encode("ascii", "backslashreplace"))
