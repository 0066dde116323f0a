"""A client of the memcache protocol: reads requests and carries them out in order; puts that come together are sent together."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

from ...ports import Ending, Place
from ...wire.errors import ERRORS, LmqError
from ..kestrel.connection import ClosedError, KestrelConnection
from ..kestrel.numbers import int32
from ..kestrel.port import KestrelPort
from .commands import COMMANDS
from .get import serve_get
from .parser import Parser, Request
from .requests import ttl_of

__all__ = ["MemcacheConnection"]

PUTS_MAX = 512
"""Puts that are under way at the same time."""
STORED, NOT_STORED = b"STORED\r\n", b"NOT_STORED\r\n"
_TEXT_MAX = 400


class MemcacheConnection(KestrelConnection):
    """See the module."""

    def __init__(self, port: KestrelPort, place: Place) -> None:
        super().__init__(port, place)
        self._parser = Parser(port.node.config.message_bytes_max)
        # Outcomes of puts under way, in order, with the queue, the time they were sent, and whether the client wants to know.
        self._puts: list[tuple[asyncio.Future[int], bytes, bool]] = []
        self._puts_since_s = 0.0

    async def serve(self) -> None:
        """Carry out what is complete."""
        parser = self._parser
        try:
            while True:
                request = parser.next(self.buffer)
                if request is None:
                    if not self._puts:
                        break
                    await self._finish_puts()
                    # More may have come meanwhile.
                    continue

                if self.port.is_rated:
                    self.charge()
                if request.command == b"set" and self._put_soon(request):
                    if len(self._puts) >= PUTS_MAX:
                        await self._finish_puts()
                    continue
                await self._finish_puts()
                parser.drop(self.buffer)
                await self._carry_out(request)
                await self.flushed()
        except LmqError:
            # Those before the one that fails have their answers first.
            await self._finish_puts()
            raise
        parser.drop(self.buffer)
        self.wanted = parser.wanted

    # --- set ------------------------------------------------------------------------------------------------------

    def _put_soon(self, request: Request) -> bool:
        """Send a put of which nothing is special; False for another one."""
        tokens, queues = request.tokens, self.queues
        if queues is None or tokens[3] != b"0" or int32(tokens[2]) is None or not queues.is_prepared(tokens[1]):
            return False
        if not self._puts:
            self._puts_since_s = self.loop.time()
        self.port.counts.cmd_set += 1
        self._puts.append((queues.put_soon(tokens[1], request.body), tokens[1], tokens[5:6] == [b"noreply"]))
        return True

    async def _finish_puts(self) -> None:
        """Answer the puts that are under way, in order."""
        puts, self._puts = self._puts, []
        answers: list[bytes] = []
        try:
            for future, queue, is_quiet in puts:
                code = "ok"
                try:
                    await future
                except LmqError as exc:
                    if exc.code not in ("full", "too_large"):
                        raise
                    code = exc.code
                self.note("set", queue, code, self._puts_since_s)
                if not is_quiet:
                    answers.append(STORED if code == "ok" else NOT_STORED)
        finally:
            for future, _, _ in puts:
                if not future.done():
                    future.cancel()
                elif not future.cancelled():
                    future.exception()
            if answers:
                self.write(b"".join(answers))

    async def _set(self, request: Request) -> None:
        tokens = request.tokens
        if int32(tokens[2]) is None:
            self.write(b"CLIENT_ERROR the flags are no integer of 32 bits\r\n")
            return
        expiry = int32(tokens[3])
        if expiry is None:
            raise LmqError("bad_request", "the expiry is no integer of 32 bits")
        if self.queues is None:
            raise ClosedError
        self.port.counts.cmd_set += 1
        (is_stored,) = await self.queues.put(tokens[1], [request.body], ttl_of(expiry))
        if tokens[5:6] != [b"noreply"]:
            self.write(STORED if is_stored else NOT_STORED)

    # --- all others -----------------------------------------------------------------------------------------------

    async def _carry_out(self, request: Request) -> None:
        command = request.command
        if command == b"set":
            await self._noted(request, self._set(request))
        elif command in (b"get", b"gets"):
            await self._noted(request, serve_get(self, request.tokens))
        elif (found := COMMANDS.get(command)) is not None:
            await self._noted(request, found(self, request.tokens))
        else:
            raise LmqError("bad_request", "there is no such command")

    async def _noted(self, request: Request, result: Awaitable[None]) -> None:
        queue = request.tokens[1].partition(b"/")[0] if len(request.tokens) > 1 else b""
        await self.noted(request.command.decode("ascii"), queue, result)

    def refuse(self, error: LmqError) -> None:
        """``SERVER_ERROR`` where another try may help, or the outcome is unknown; else ``CLIENT_ERROR``."""
        spec = ERRORS[error.code]
        word = b"SERVER_ERROR" if spec.http >= 500 or error.retryable else b"CLIENT_ERROR"
        if error.code == "bad_request":
            self.place.note(Ending.BAD_REQUEST, error.message)
        text = f"{error.code}: {error.message}".encode("ascii", "backslashreplace")[:_TEXT_MAX]
        self.write(word + b" " + text + b"\r\n")
