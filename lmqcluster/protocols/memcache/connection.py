"""A connection of a memcache client. Requests are carried out in order; consecutive puts are sent together."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable
from typing import NamedTuple

from ...core import PushFlag
from ...node.queues.sending.push_items import refusal_of
from ...ports import ConnectionSlot, Ending
from ...wire.errors import ERRORS, LmqError
from ..kestrel.connection import ClosedError, KestrelConnection
from ..kestrel.numbers import int32
from ..kestrel.port_context import PortContext
from ..kestrel.queues import KestrelQueues
from .commands import COMMANDS
from .get import serve_get
from .parser import Parser, Request
from .requests import ttl_of

__all__ = ["MemcacheConnection"]

PUTS_MAX = 512
"""Maximum number of puts in flight."""
RUN_BYTES = 128 * 1024
"""Approximate number of bytes of puts that are sent as one."""
GETS_MAX = 512
"""Maximum number of equal gets that are carried out together."""
_TEXT_MAX = 400
_GETS = frozenset((b"get", b"gets"))
_STORED, _NOT_STORED = b"STORED\r\n", b"NOT_STORED\r\n"


class _Puts(NamedTuple):
    """Puts into one queue that were sent together.

    Attributes:
        outcome: the flags of the puts, in order.
        sizes: the size of each put in bytes.
        is_quiet: whether the client sent ``noreply``.
    """

    outcome: asyncio.Future[list[int]]
    queue: bytes
    sizes: list[int]
    is_quiet: bool


class MemcacheConnection(KestrelConnection):
    """Connection that reads memcache requests and carries them out in order."""

    def __init__(self, port: PortContext, place: ConnectionSlot) -> None:
        super().__init__(port, place)
        self._parser = Parser(port.node.config.message_bytes_max)
        # Puts in flight, in order; their number; and the time at which the first was sent.
        self._puts: list[_Puts] = []
        self._puts_count = 0
        self._puts_since_s = 0.0

    async def serve(self) -> None:
        """Carry out all complete requests."""
        parser = self._parser
        try:
            while True:
                request = parser.next(self.buffer)
                if request is None:
                    if not self._puts:
                        break
                    await self._finish_puts()
                    # More data may have arrived during the wait.
                    continue

                if self.port.is_rated:
                    self.charge()
                if request.command == b"set" and self._put_soon(request):
                    if self._puts_count >= PUTS_MAX:
                        await self._finish_puts()
                    continue
                await self._finish_puts()
                is_get = request.command in _GETS and not self.port.is_rated
                count = 1 + (parser.repeated(self.buffer, GETS_MAX) if is_get else 0)
                parser.drop(self.buffer)
                await self._carry_out(request, count)
                await self.flushed()
        except LmqError:
            # Puts before the failed request are answered first.
            await self._finish_puts()
            raise
        parser.drop(self.buffer)
        self.wanted = parser.wanted

    # --- set ------------------------------------------------------------------------------------------------------

    def _put_soon(self, request: Request) -> bool:
        """Send a plain put together with the equal ones that follow it. Return False if the put is not plain."""
        tokens, queues = request.tokens, self.queues
        if queues is None or not _is_plain_put(queues, request):
            return False
        if not self._puts:
            self._puts_since_s = self.loop.time()
        bodies = [request.body]
        if not self.port.is_rated:
            most = min(PUTS_MAX - self._puts_count, RUN_BYTES // (len(request.body) + 1))
            bodies += self._parser.more_bodies(self.buffer, most - 1)
        self.port.counts.cmd_set += len(bodies)
        sizes = list(map(len, bodies))
        outcome = queues.put_soon(tokens[1], bodies)
        self._puts.append(_Puts(outcome, tokens[1], sizes, tokens[5:6] == [b"noreply"]))
        self._puts_count += len(bodies)
        return True

    async def _finish_puts(self) -> None:
        """Answer the puts in flight, in order."""
        puts, self._puts, self._puts_count = self._puts, [], 0
        answers: list[bytes] = []
        try:
            for one in puts:
                flags = await one.outcome
                self._note_puts(one, flags)
                if not one.is_quiet:
                    answers += [_STORED if flag < PushFlag.FULL else _NOT_STORED for flag in flags]
        finally:
            for one in puts:
                if not one.outcome.done():
                    one.outcome.cancel()
                elif not one.outcome.cancelled():
                    one.outcome.exception()
            if answers:
                self.write(b"".join(answers))

    def _note_puts(self, puts: _Puts, flags: list[int]) -> None:
        if self.queues is not None:
            stored = [size for size, flag in zip(puts.sizes, flags, strict=True) if flag < PushFlag.FULL]
            self.queues.count_puts(puts.queue, stored)
        for flag, count in Counter(flags).items():
            code = "ok" if flag < PushFlag.FULL else refusal_of(flag).code
            self.note("set", puts.queue, code, self._puts_since_s, count)

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
            self.write(_STORED if is_stored else _NOT_STORED)

    # --- all others -----------------------------------------------------------------------------------------------

    async def _carry_out(self, request: Request, count: int) -> None:
        command = request.command
        if command == b"set":
            await self._noted(request, self._set(request))
        elif command in _GETS:
            await self._noted(request, serve_get(self, request.tokens, count), count)
        elif (found := COMMANDS.get(command)) is not None:
            await self._noted(request, found(self, request.tokens))
        else:
            raise LmqError("bad_request", "there is no such command")

    async def _noted(self, request: Request, result: Awaitable[None], count: int = 1) -> None:
        queue = request.tokens[1].partition(b"/")[0] if len(request.tokens) > 1 else b""
        await self.noted(request.command.decode("ascii"), queue, result, count)

    def refuse(self, error: LmqError) -> None:
        """Answer ``SERVER_ERROR`` if a retry may help or the outcome is unknown, otherwise ``CLIENT_ERROR``."""
        spec = ERRORS[error.code]
        word = b"SERVER_ERROR" if spec.http >= 500 or error.retryable else b"CLIENT_ERROR"
        if error.code == "bad_request":
            self.place.note(Ending.BAD_REQUEST, error.message)
        text = f"{error.code}: {error.message}".encode("ascii", "backslashreplace")[:_TEXT_MAX]
        self.write(word + b" " + text + b"\r\n")


def _is_plain_put(queues: KestrelQueues, request: Request) -> bool:
    """Return whether a put has no expiry and valid flags, and its queue needs no preparation."""
    tokens = request.tokens
    return tokens[3] == b"0" and int32(tokens[2]) is not None and queues.is_prepared(tokens[1])
