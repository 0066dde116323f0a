"""One client connection: decodes requests, adds them to the proposer's groups in the order they came, writes responses.

Push, pull and done are the hot path: consecutive requests of the same kind on the same queue share one command, and their
responses leave in one write.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any

import msgpack
import structlog

from ...core import Op
from ...core.commands import Delivered
from ...node.access import Principal
from ...node.address import is_loopback
from ...node.clients import client_of
from ...node.gates import ARRIVAL_BYTES_PER_S
from ...node.proposer import Group
from ...node.pulls import Waiter
from ...ports import Ending, Place
from ...wire.errors import LmqError, Outcome
from ...wire.legacy_msgpack import CONTENT_TYPE, make_unpacker, pack
from ...wire.limits import NAME_BYTES_MAX, REQUEST_BYTES_MAX
from . import replies
from .arguments import arity, body_of, pushes_of, wait
from .values import VALUES_MAX, ValueCounter

if TYPE_CHECKING:
    from .frontend import RpcFrontEnd

__all__ = ["NOTIFICATION", "Connection", "Handler"]

log = structlog.get_logger("lmq.rpc")

WAITERS_MAX = 50_000
"""Most pulls that one connection may have waiting."""
SMALL_BYTES = 64 * 1024
"""Requests and responses up to here are not counted one by one: what is read at once bounds them."""
PARTIAL_BYTES_MAX = 256 * 1024 * 1024
"""Most bytes of unfinished large requests that the node holds for all clients together."""
UNREAD_BYTES_MAX = 64 * 1024 * 1024
"""Most bytes of large responses that wait for a client to read them."""
STRANGER_BYTES_MAX = 64 * 1024
"""Largest unfinished request of a client that has not said who it is."""
REQUESTS_PER_TURN = 512
TASKS_MAX = 64
"""Most requests of several steps that one connection may have under way."""
_HEAD_BYTES = 16
_KEEPALIVE = (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3))
_UNDEF = "undef"
_PUSH = int(Op.PUSH)
_PUSHES = (b"push", b"push_many")


class _Notification:
    """Stands for the msgid of a notification, which is never answered."""


NOTIFICATION = _Notification()
Handler = Callable[["Connection", Any, list[Any]], None]


class Connection(asyncio.Protocol):
    """A client. It is the `Sink` of its push and done groups and the `Puller` of its pulls.

    Attributes:
        principal: who the client is, None before it has said so.
        place: what it counts for.
        is_local: whether it is on this machine.
    """

    def __init__(self, owner: RpcFrontEnd, place: Place) -> None:
        self.node = owner.node
        self.service = owner.node.service
        self.closed = False
        self.principal: Principal | None = None
        self.place = place
        self.is_local = is_loopback(place.address)
        self.waiting: set[Waiter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.producer: bytes | None = None
        self.producer_owner: list[bytes] = []
        self.next_sequence = 1
        self.push_error: LmqError | None = None
        self.partial_since_s: float | None = None
        self._partial_began_s = 0.0
        self._rated = owner.gate.bounds.requests_per_s > 0
        # What had come when it was last looked at, and since when it has been so.
        self._seen = -1
        self._seen_s = 0.0
        self._owner = owner
        self._methods: Mapping[bytes, Handler] = {}
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport
        self._unpacker = make_unpacker(REQUEST_BYTES_MAX)
        # Bytes received, and those of them that belong to complete requests.
        self._fed = 0
        self._whole = 0
        self._head = b""
        self._values = ValueCounter()
        self._partial_bytes = 0
        self._refused = False
        self._out: list[bytes] = []
        self._large_out_bytes = 0
        self._encoder: replies.DeliveryEncoder | None = None
        # `_reading` is the wish, `_working` whether reading stands still until what has arrived is carried out.
        self._reading = True
        self._writable = True
        self._working = False
        # Whether requests are held up, and what has arrived meanwhile.
        self._held = False
        self._rest: tuple[bytes, int] | None = None

    # --- asyncio --------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]
        sock = transport.get_extra_info("socket")
        if sock is not None:
            # A client whose machine vanished must not keep its waiting pulls for ever.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for name, seconds in _KEEPALIVE:
                if hasattr(socket, name):
                    sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), seconds)
        self._owner.connected(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        self.closed = True
        self._account_partial(0)
        self.service.pulls.abandon(self)
        for task in self._tasks:
            task.cancel()
        self._owner.disconnected(self)

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        base = self._fed
        self._fed += len(data)
        try:
            self._unpacker.feed(data)
        except msgpack.BufferFull:
            self._refuse_oversized()
            return
        self._take(data, base)

    def _take(self, data: bytes, base: int) -> None:
        """Carry out what has arrived, `REQUESTS_PER_TURN` at a time: so the cluster is at work on the first requests of a
        burst while the later ones are decoded, and no client keeps the others waiting for long.
        """
        unpacker, whole, left = self._unpacker, self._whole, REQUESTS_PER_TURN
        try:
            for message in unpacker:
                whole = unpacker.tell()
                self._dispatch(message)
                left -= 1
                if self._held or (not left and whole < self._fed):
                    self._whole = whole
                    self._take_later(data, base)
                    return
        except msgpack.BufferFull:
            self._refuse_oversized()
            return
        except (ValueError, TypeError, OverflowError, RecursionError, LmqError, msgpack.UnpackException) as exc:
            self._close(f"not a MessagePack-RPC request: {exc or type(exc).__name__}")
            return
        if self._working:
            self._working = False
            if self._reading and not self.closed:
                self._transport.resume_reading()
        self._whole = whole
        if whole and self.principal is not None:
            self.place.admit()
        if whole == self._fed:
            self.partial_since_s = None
            if self._partial_bytes:
                self._account_partial(0)
        else:
            self._note_partial(data, whole - base)
        if self.service.proposer.is_full():
            self._owner.hold(self)

    def _take_later(self, data: bytes, base: int) -> None:
        if not self._working:
            self._working = True
            if self._reading:
                self._transport.pause_reading()
        if self._held:
            self._rest = (data, base)
        else:
            self._loop.call_soon(self._take_rest, data, base)

    def _take_rest(self, data: bytes, base: int) -> None:
        if not self.closed and not self._refused:
            self._take(data, base)

    def hold(self) -> None:
        """Carry out nothing more until `go_on`, because the request before is not in its place in the log yet."""
        self._held = True

    def go_on(self) -> None:
        """The request that held the others up has taken effect."""
        self._held = False
        if self._rest is not None:
            data, base = self._rest
            self._rest = None
            self._loop.call_soon(self._take_rest, data, base)

    def _note_partial(self, data: bytes, start: int) -> None:
        """A request is incomplete; it began at `start` of `data`, or before it."""
        self.partial_since_s = self._loop.time()
        if start >= 0:
            self._partial_began_s = self.partial_since_s
            self._head = b""
            self._values = ValueCounter()
        if len(self._head) < _HEAD_BYTES:
            self._head += bytes(data[max(0, start) :][: _HEAD_BYTES - len(self._head)])
        size = self._fed - self._whole
        if size > SMALL_BYTES or self._partial_bytes:
            self._account_partial(size)
        if size > STRANGER_BYTES_MAX and self.principal is None:
            self._refuse_partial(self.node.access.refusal().rpc_text())
            return
        # The unpacker's own limit is no help: it decodes as bytes come, so what it buffers stays small.
        if size > REQUEST_BYTES_MAX:
            self._refuse_oversized()
        elif not self._values.feed(data[start:] if start > 0 else data):
            self._refuse_partial(f"too_large: a request may hold at most {VALUES_MAX} values")
        elif self._partial_bytes and self._owner.partial_bytes > PARTIAL_BYTES_MAX:
            self._refuse_partial("overloaded: unfinished requests fill the node's buffers; try again later")

    def _account_partial(self, size: int) -> None:
        self._owner.partial_bytes += size - self._partial_bytes
        self._partial_bytes = size

    def is_stalled(self, now_s: float, stall_s: float, request_s: float) -> bool:
        """Whether nothing of an unfinished request has come for `stall_s`, though it could have, or too little altogether."""
        if not self._reading or self.partial_since_s is None:
            return False
        late_s = self._partial_began_s + request_s + (self._fed - self._whole) / ARRIVAL_BYTES_PER_S
        return self.partial_since_s < now_s - stall_s or late_s < now_s

    def is_idle(self, now_s: float, idle_s: float) -> bool:
        """Whether nothing has come for `idle_s` and nothing is under way."""
        if self._fed != self._seen or self.waiting or self._tasks:
            self._seen, self._seen_s = self._fed, now_s
        return self._seen_s < now_s - idle_s

    def pause_writing(self) -> None:
        """The client does not read its responses: take no more requests from it."""
        self._writable = False
        self.pause_reading()

    def resume_writing(self) -> None:
        self._writable = True
        self.resume_reading()

    def pause_reading(self) -> None:
        """Take no more requests for now."""
        if self._reading and not self.closed:
            self._reading = False
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Take requests again, unless the client is still not reading."""
        if not self._reading and self._writable and not self.closed:
            self._reading = True
            if self.partial_since_s is not None:
                self.partial_since_s = self._partial_began_s = self._loop.time()
            if not self._working:
                self._transport.resume_reading()

    def _refuse_oversized(self) -> None:
        self._refuse_partial(f"too_large: a request may have at most {REQUEST_BYTES_MAX} bytes")

    def _refuse_partial(self, reason: str) -> None:
        """Answer an unfinished request with an error, if its msgid can be read from its head, and close."""
        self._account_partial(0)
        answer = self._answer_by_head(reason)
        if answer is None:
            self._close(reason)
            return
        self.place.note(Ending.BAD_REQUEST, reason)
        # What is still coming is read and dropped until the client or the time limit ends it: closing now could make the
        # client's machine throw the answer away.
        self._refused = True
        self._unpacker = make_unpacker(REQUEST_BYTES_MAX)
        self.write(answer)
        self._flush()
        if self._transport.can_write_eof():
            self._transport.write_eof()

    def _answer_by_head(self, text: str) -> bytes | None:
        head = make_unpacker(REQUEST_BYTES_MAX)
        head.feed(self._head)
        try:
            is_request = head.read_array_header() == 4 and head.unpack() == 0
            return replies.failure(head.unpack(), text) if is_request else None
        except (ValueError, LmqError, msgpack.UnpackException):
            return None

    def _close(self, reason: str) -> None:
        self.place.note(Ending.BAD_REQUEST, reason)
        self._flush()
        self._transport.close()
        # Nothing more is taken, even of what has arrived already.
        self.pause_reading()

    def close(self) -> None:
        """Send what is ready and close."""
        if not self.closed:
            self._flush()
            self._transport.close()

    def expel(self) -> None:
        """Send what is ready and close; a message on its way to a pull of this client is put back."""
        if not self.closed:
            self._flush()
            self.closed = True
            self.service.pulls.abandon(self)
            self._transport.close()

    def peer(self) -> str:
        """Address of the client."""
        address: Any = self.place.address
        return f"{address[0]}:{address[1]}" if address else "?"

    # --- who it is --------------------------------------------------------------------------------------------------

    def admit(self, principal: Principal | None, methods: Mapping[bytes, Handler]) -> None:
        """Take note who the client is, and of the methods as it may call them."""
        self.principal, self._methods = principal, methods

    def authenticate(self, secret: bytes) -> None:
        """The client shows a token.

        Raises:
            LmqError: ``unauthorized``; ``conflict`` if it has shown another one before; ``no_leader`` if it cannot be known yet.
        """
        if self.principal is not None and self.principal is self.node.access.anonymous:
            return
        if self.node.access.outside is not None:
            raise self.node.access.outside
        principal = self.node.access.authenticate(secret)
        if self.principal is not None and self.principal is not principal:
            # Its waiting pulls are the other one's.
            raise LmqError("conflict", "this connection has shown another token already", retryable=False)
        self.principal = principal

    def known_principal(self) -> Principal:
        """Who the client is.

        Raises:
            LmqError: it has not said so.
        """
        if self.principal is None:
            raise self.node.access.refusal()
        return self.principal

    def owned(self) -> list[bytes]:
        """The last argument of a command whose effect is kept for the client, see `QueueService.owned`.

        Raises: as `known_principal`.
        """
        return self.service.owned(self.known_principal().owner)

    def client(self) -> bytes:
        """Whose share of the node its requests use."""
        return client_of(self.node.access, self.known_principal(), self.peer())

    # --- requests -------------------------------------------------------------------------------------------------

    def _dispatch(self, message: Any) -> None:
        """Carry out one request or notification.

        Raises:
            ValueError, LmqError: it is neither.
        """
        if type(message) is not list:
            raise ValueError("neither a request nor a notification")
        if len(message) == 4 and message[0] == 0 and type(message[0]) is int:
            _, msgid, method, arguments = message
        elif len(message) == 3 and message[0] == 2 and type(message[0]) is int:
            msgid = NOTIFICATION
            _, method, arguments = message
        else:
            raise ValueError("neither a request nor a notification")
        if type(msgid) is not int and msgid is not NOTIFICATION:
            pack(msgid)
        try:
            handler = self._methods.get(method) if type(method) is bytes else None
            if handler is None:
                self.fail(msgid, _UNDEF)
            elif type(arguments) is not list:
                self.fail(msgid, "function_clause")
            else:
                if self._rated:
                    self._charge(method, arguments)
                handler(self, msgid, arguments)
        except LmqError as exc:
            if method in _PUSHES:
                self.push_refused(exc)
            self.fail(msgid, exc.rpc_text())

    def _charge(self, method: bytes, arguments: list[Any]) -> None:
        """Charge the client for a request.

        Raises:
            LmqError: ``overloaded`` if its address has used up what it may send.
        """
        if self.place.client.take(self._loop.time()):
            self.next_sequence += pushes_of(method, arguments)
            raise LmqError("overloaded", "this address sends more requests a second than it may; wait a little")

    def bind(self, producer: bytes, first_sequence: int) -> None:
        """Number the pushes that follow for a producer. Only lmqcluster's own client does that."""
        # A growing group must not go on under another producer.
        self.service.proposer.tail = None
        self.producer, self.next_sequence, self.push_error = producer, first_sequence, None
        self.producer_owner = self.owned()
        self._encoder = None

    def push_refused(self, error: LmqError) -> None:
        """A push was refused.

        If a producer's push could be tried again, its later pushes must not overtake it: stored under a higher number, they
        would make the refused one look like a duplicate. So they are refused too, until the producer binds anew.
        """
        tail = self.service.proposer.tail
        if tail is not None and tail.sink is self:
            # Numbers within a group have no holes.
            self.service.proposer.tail = None
        if self.producer is not None and error.retryable and error.outcome == Outcome.NOT_APPLIED:
            self.push_error = error

    def push(self, msgid: Any, arguments: list[Any]) -> None:
        """``push(name, content)``."""
        name, content = arguments
        service, sequence = self.service, self.next_sequence
        # Refused or not, a push uses up its number, so that the client and this side go on counting alike.
        self.next_sequence = sequence + 1
        if self.push_error is not None:
            raise self.push_error
        if type(name) is not bytes:
            raise LmqError("bad_arguments", "a queue name must be a string")
        body = body_of(content)
        size = len(body)
        service.check_push(size)
        proposer = service.proposer
        tail = proposer.tail
        if tail is not None and tail.sink is self and tail.command[1] == name and tail.command[0] == _PUSH:
            tail.command[3].append(body)
            tail.tickets.append(msgid)
            proposer.grew(tail, size + 8)
            return
        service.check_name(name)
        command = [_PUSH, name, CONTENT_TYPE, [body], self.producer, sequence, *self.producer_owner]
        proposer.add(Group(command, [msgid], self), size + 64)

    def pull(self, msgid: Any, arguments: list[Any]) -> None:
        """``pull(name[, timeout])``."""
        if len(arguments) == 2:
            name, wait_s = arguments[0], wait(arguments[1])
        else:
            arity(arguments, 1, 1)
            name, wait_s = arguments[0], None
        if type(name) is not bytes:
            raise LmqError("bad_arguments", "a queue name must be a string")
        service = self.service
        tail = service.proposer.tail
        if tail is None or tail.sink is not service.pulls or tail.command[1] != name:
            service.check_name(name)
            service.receipts()
        if len(self.waiting) >= WAITERS_MAX:
            self.check_waiters()
        service.pulls.start(name, (self, msgid, 1, wait_s))

    def check_waiters(self) -> None:
        """Refuse one more pull than a connection may have waiting.

        Raises:
            LmqError: ``overloaded``.
        """
        if len(self.waiting) >= WAITERS_MAX:
            raise LmqError("overloaded", f"{WAITERS_MAX} pulls of this connection are waiting, the limit")

    def settle(self, op: Op, msgid: Any, arguments: list[Any]) -> None:
        """``done``, ``release`` or ``retain``: ``(name, id)``."""
        arity(arguments, 2, 2)
        name, receipt = arguments
        if type(name) is not bytes or type(receipt) is not bytes:
            raise LmqError("bad_arguments", "a queue name and a message id must be strings")
        number = self.service.receipts().parse(receipt)
        proposer = self.service.proposer
        tail = proposer.tail
        if tail is not None and tail.sink is self and tail.command[0] == op and tail.command[1] == name:
            tail.command[2].append(number)
            tail.tickets.append(msgid)
            proposer.grew(tail, 16)
        elif len(name) > NAME_BYTES_MAX:
            raise LmqError("queue_not_found", "no queue has such a long name")
        else:
            proposer.add(Group([op, name, [number]], [msgid], self), 64)

    def check_tasks(self) -> None:
        """Refuse a request that takes several steps if too many of them are under way.

        Raises:
            LmqError: ``overloaded``.
        """
        if len(self._tasks) >= TASKS_MAX:
            raise LmqError("overloaded", f"{TASKS_MAX} such requests of this connection are under way, the limit")

    def run(self, msgid: Any, result: Coroutine[Any, Any, bytes]) -> None:
        """Answer a request that takes several steps with the encoded result of a coroutine.

        Raises:
            LmqError: ``overloaded``.
        """
        try:
            self.check_tasks()
        except LmqError:
            result.close()
            raise
        task = self._loop.create_task(self._answer(msgid, result))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, msgid: Any, result: Coroutine[Any, Any, bytes]) -> None:
        try:
            self.succeed(msgid, await result)
        except LmqError as exc:
            self.fail(msgid, exc.rpc_text())
        except Exception:
            # A bug, which must not leave the client without an answer.
            log.exception("a request failed", peer=self.peer())
            self.fail(msgid, LmqError("internal", "the node met a bug; its log has the details").rpc_text())

    # --- outcomes -------------------------------------------------------------------------------------------------

    def completed(self, group: Group, result: Any) -> None:
        """Answer a group of pushes or settlements (`Sink`)."""
        tickets, group.tickets = group.tickets, []
        if self.closed or not tickets:
            return
        is_push = group.command[0] == _PUSH
        if result is not None and result.count(0 if is_push else True) == len(tickets) and NOTIFICATION not in tickets:
            self.write(replies.all_ok(tickets))
            return
        if is_push:
            texts = replies.FLAG_TEXTS
            out = [
                replies.success(msgid, texts[flag])
                for msgid, flag in zip(tickets, result, strict=True)
                if msgid is not NOTIFICATION
            ]
        elif result is None:
            out = [replies.failure(m, "throw:queue_not_found") for m in tickets if m is not NOTIFICATION]
        else:
            out = [
                replies.success(msgid, replies.OK) if settled else replies.failure(msgid, "throw:not_found")
                for msgid, settled in zip(tickets, result, strict=True)
                if msgid is not NOTIFICATION
            ]
        self.write(b"".join(out))

    def failed(self, group: Group, error: LmqError) -> None:
        """Refuse a group of pushes or settlements (`Sink`)."""
        if group.command[0] == _PUSH:
            self.push_refused(error)
        tickets, group.tickets = group.tickets, []
        for msgid in tickets:
            self.fail(msgid, error.rpc_text())

    def pulled(self, token: Any, delivered: list[Delivered]) -> None:
        """Answer a ``pull`` or ``pull_any`` (`Puller`)."""
        if token is NOTIFICATION:
            return
        if not delivered:
            self.write(replies.success(token, replies.EMPTY))
            return
        result = self.encoder().encode(delivered[0])
        if len(result) > SMALL_BYTES and not self.has_room(len(result)):
            self.give_back(token, delivered)
        else:
            self.write(replies.success(token, result))

    def has_room(self, size_bytes: int) -> bool:
        """Whether a large response fits the bound on what the client has not read yet; if so it is counted."""
        if self._transport.get_write_buffer_size() + self._large_out_bytes + size_bytes > UNREAD_BYTES_MAX:
            return False
        self._large_out_bytes += size_bytes
        return True

    def give_back(self, msgid: Any, delivered: list[Delivered]) -> None:
        """Refuse a pull whose messages the client has left no room for."""
        self.service.pulls.put_back(delivered)
        self.fail(msgid, f"overloaded: the client leaves more than {UNREAD_BYTES_MAX} bytes of responses unread")

    def encoder(self) -> replies.DeliveryEncoder:
        """Encodes messages with the ids of the present cluster life."""
        receipts = self.service.receipts()
        if self._encoder is None or self._encoder.receipts is not receipts:
            self._encoder = replies.DeliveryEncoder(receipts, typed=self.producer is not None)
        return self._encoder

    def pull_failed(self, token: Any, error: LmqError) -> None:
        """Refuse a pull (`Puller`)."""
        self.fail(token, error.rpc_text())

    def succeed(self, msgid: Any, result: bytes) -> None:
        """Answer with an encoded result."""
        if msgid is not NOTIFICATION:
            self.write(replies.success(msgid, result))

    def fail(self, msgid: Any, error_text: str) -> None:
        """Answer with an error."""
        if msgid is not NOTIFICATION:
            self.write(replies.failure(msgid, error_text))

    def write(self, data: bytes) -> None:
        """Send at the end of this turn of the event loop."""
        if not self._out:
            self._loop.call_soon(self._flush)
        self._out.append(data)

    def _flush(self) -> None:
        if self._out and not self._transport.is_closing():
            self._transport.write(b"".join(self._out))
        self._out = []
        self._large_out_bytes = 0
