"""Requests that come alone, carried out without a task: a put, or a get of an item that is there, with one command each.

Their outcome comes while a batch is applied, and the answer leaves when all of that has its effect: if the batch has ended
the node's session, the connection is closed by then, and nothing of what it held is acknowledged as closed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...core import PushFlag
from ...core.commands import Delivered
from ...node.queues.push_items import refusal_of
from ...wire.errors import LmqError
from ..kestrel.numbers import int32
from ..kestrel.queues import KestrelQueues, body_of
from .get import END, answer_get, value_of
from .parser import Request
from .requests import Get, parse_get

if TYPE_CHECKING:
    from .connection import MemcacheConnection

__all__ = ["GETS", "NOT_STORED", "STORED", "begin", "is_plain_put"]

GETS = frozenset((b"get", b"gets"))
STORED, NOT_STORED = b"STORED\r\n", b"NOT_STORED\r\n"


def begin(connection: MemcacheConnection, request: Request) -> bool:
    """Begin a request; False if it has to be carried out by the worker."""
    queues = connection.queues
    if queues is None or connection.port.is_rated:
        return False
    if request.command == b"set":
        return is_plain_put(queues, request) and _Put(connection, request).begin(queues, request.body)
    return request.command in GETS and len(request.tokens) > 1 and _begin_get(connection, queues, request)


def is_plain_put(queues: KestrelQueues, request: Request) -> bool:
    """Whether nothing is special about a put."""
    tokens = request.tokens
    return tokens[3] == b"0" and int32(tokens[2]) is not None and queues.is_prepared(tokens[1])


class _Put:
    """A put on its way (`Asker`)."""

    __slots__ = ("_connection", "_flag", "_is_over", "_is_quiet", "_queue", "_since_s", "_size")

    def __init__(self, connection: MemcacheConnection, request: Request) -> None:
        self._connection = connection
        self._queue = request.tokens[1]
        self._size = len(request.body)
        self._is_quiet = request.tokens[5:6] == [b"noreply"]
        self._since_s = connection.loop.time()
        self._is_over = False
        self._flag = 0

    def begin(self, queues: KestrelQueues, content: bytes) -> bool:
        """Send it."""
        self._connection.port.counts.cmd_set += 1
        try:
            queues.put_directly(self, self._queue, content)
        except LmqError as exc:
            self.set_exception(exc.again())
        return True

    def done(self) -> bool:
        return self._is_over

    def set_result(self, flags: list[int]) -> None:
        self._is_over = True
        self._flag = flags[0]
        self._connection.port.answer_soon(self._answer)

    def set_exception(self, error: LmqError) -> None:
        self._is_over = True
        self._connection.failed_directly("set", self._queue, error, self._since_s)

    def _answer(self) -> None:
        connection, flag, queue = self._connection, self._flag, self._queue
        is_stored = flag < PushFlag.FULL
        if is_stored and connection.queues is not None:
            connection.queues.count_puts(queue, [self._size])
        connection.note("set", queue, "ok" if is_stored else refusal_of(queue, flag).code, self._since_s)
        connection.answer_directly(b"" if self._is_quiet else STORED if is_stored else NOT_STORED)


def _begin_get(connection: MemcacheConnection, queues: KestrelQueues, request: Request) -> bool:
    try:
        asked = parse_get(request.tokens[1])
    except LmqError:
        # The worker meets it too, and says so.
        return False
    if asked.aborts or asked.peeks:
        return False
    open_reads = connection.held.count(asked.queue)
    closes = asked.closes and open_reads > 0
    takes = asked.opens or not asked.closes
    if takes:
        left = open_reads - closes
        if (left and not asked.opens) or left >= connection.port.open_reads_max or not queues.has_next(asked.queue):
            return False
    return (takes or closes) and _Get(connection, request, asked, closes=closes, takes=takes).begin(queues)


class _Get:
    """A get on its way: what ends the read before (`Asker`), and what takes the next item (`Taker`)."""

    __slots__ = (
        "_asked", "_closes", "_connection", "_delivered", "_is_closing", "_is_over", "_operation", "_since_s", "_takes",
    )  # fmt: skip

    def __init__(
        self, connection: MemcacheConnection, request: Request, asked: Get, *, closes: bool, takes: bool
    ) -> None:
        self._connection = connection
        self._operation = request.command.decode("ascii")
        self._asked = asked
        self._closes = self._is_closing = closes
        self._takes = takes
        self._since_s = connection.loop.time()
        self._is_over = False
        self._delivered: list[Delivered] | None = None if takes else []

    def begin(self, queues: KestrelQueues) -> bool:
        """Send it; False if the worker has to do that."""
        asked, connection = self._asked, self._connection
        if self._takes and not queues.take_directly(self, asked.queue, connection.has_room, settles=not asked.opens):
            return False
        if self._closes:
            # Ends go before what is taken in the same turn.
            connection.held.confirm_to(self, asked.queue)
        return True

    # --- the end of the read before ---

    def done(self) -> bool:
        return self._is_over or not self._is_closing

    def set_result(self, _were_open: Any) -> None:
        self._is_closing = False
        self._advance()

    def set_exception(self, error: LmqError) -> None:
        self.failed(error)

    # --- the next item ---

    @property
    def closed(self) -> bool:
        return self._is_over or self._connection.is_over

    def taken(self, delivered: list[Delivered]) -> None:
        if self._asked.opens:
            # Should the connection end before the answer, this returns to the head.
            self._connection.held.add(self._asked.queue, delivered)
        self._delivered = delivered
        self._advance()

    def not_taken(self) -> None:
        self._delivered = []
        self._advance()

    def failed(self, error: LmqError) -> None:
        if not self._is_over:
            self._is_over = True
            self._connection.failed_directly(self._operation, self._asked.queue, error, self._since_s)

    def _advance(self) -> None:
        if not self._is_closing and self._delivered is not None and not self._is_over:
            self._is_over = True
            self._connection.port.answer_soon(self._answer)

    def _answer(self) -> None:
        connection, queue, delivered = self._connection, self._asked.queue, self._delivered
        if connection.is_closing:
            return
        if self._closes:
            connection.held.forget(queue)
        if self._takes and not delivered:
            # Others were faster, or the node's session is gone. The read before is closed.
            connection.end_directly(self._ask_again)
            return
        answer = END
        if delivered:
            connection.port.counts.cmd_get += 1
            connection.port.counts.get_hits += 1
            if self._asked.opens and connection.queues is not None:
                connection.queues.opened(queue)
            answer = value_of(queue, body_of(delivered[0][3]))
        connection.note(self._operation, queue, "ok", self._since_s)
        connection.answer_directly(answer)

    async def _ask_again(self) -> None:
        connection, asked = self._connection, self._asked._replace(closes=False)
        await connection.noted(self._operation, asked.queue, answer_get(connection, asked))
