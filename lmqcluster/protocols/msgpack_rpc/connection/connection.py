"""A client connection: decodes requests, adds them to the proposer's commands in order of arrival, writes responses.

Push, pull and done are the hot path: consecutive requests of the same kind on the same queue share one command, and
their responses are sent in one write.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import partial
from typing import Any

from ....core.log.results import Delivered
from ....node.access.access import Principal
from ....node.access.clients import client_of
from ....node.commit.proposer import PendingCommand
from ....node.queues.pulls.unsent import Unsent
from ....ports import HALF_CLOSED_S, ConnectionSlot, RelayedTransport, is_gone, wait_for_acknowledgement
from ....wire.address import is_loopback
from ....wire.errors import LmqError, Outcome, forget_frames
from ....wire.legacy_msgpack import pack
from ....wire.parts import LARGE_BYTES
from ..values import replies
from ..values.arguments import pushes_of
from .half_closed import until, until_applied
from .port_context import PortContext
from .repeats import RepeatedCalls
from .slow_answers import SlowAnswers
from .stream import UNREAD_BYTES_MAX, Stream, checked_msgid

__all__ = ["MANY_BYTES_MAX", "NOTIFICATION", "Connection", "Handler"]

MANY_BYTES_MAX = 16 * 1024 * 1024
"""Size above which a batch ends, after the message that exceeds it, independent of the requested count."""
UNCOUNTED_WAITERS = 1_000
"""Number of waiting pulls from which each further one needs memory in the client's share."""
ENCODINGS_MAX = 16
"""Maximum number of pulled messages with large bodies that are encoded concurrently for one connection."""
_UNDEF = "undef"
_UNREAD = f"overloaded: the client leaves more than {UNREAD_BYTES_MAX} bytes of responses unread"
_PUSHES = (b"push", b"push_many", b"push_each")
_SHARING = frozenset((b"push", b"pull", b"done"))
"""Methods that set `Connection.last_number` themselves if they have no options, which are the third argument."""


class _Notification:
    """Placeholder for the msgid of a notification, which is never answered."""


NOTIFICATION = _Notification()
Handler = Callable[["Connection", Any, list[Any]], None]
_Send = Callable[[Any, list[Delivered], list[bytes]], None]


def _nothing(_result: bytes) -> None:
    """Do nothing, because the response was already sent."""


class Connection(Stream):
    """A client connection, the `DeliverySink` of its pulls.

    Attributes:
        answers: answers its requests that share commands.
        last_number: number of the command that the last request is in, see `Proposer.open_command`.
        is_local: whether the client is on this machine.
        producer: the producer whose numbers its pushes get, None if they are not numbered.
        producer_owner: the owner of this producer.
        next_sequence: the number of its next push.
        push_error: why its pushes are refused until the producer binds again, see `push_refused`; None if they are not.
        on_made: called when the connection is established.
        on_lost: called when the connection is closed.
    """

    on_made: Callable[[Connection], None]
    on_lost: Callable[[Connection], None]

    def __init__(self, port: PortContext, place: ConnectionSlot) -> None:
        super().__init__(port, place)
        self.is_local = is_loopback(place.address)
        self.producer: bytes | None = None
        self.producer_owner = b""
        self.next_sequence = 1
        self.push_error: LmqError | None = None
        self.last_number = 0
        self.answers = port.answers
        self._rated = port.node.gates.rpc.bounds.requests_per_s > 0
        self._repeats: RepeatedCalls | None = None
        self._pushed: bytes | None = None
        self._methods: Mapping[bytes, Handler] = {}
        self._encoder: replies.DeliveryEncoder | None = None
        # Deliveries that are being encoded, and how they are returned if the client disconnects first.
        self._encoding: dict[int, tuple[list[Delivered], Unsent]] = {}
        self._encodings = asyncio.Semaphore(ENCODINGS_MAX)
        self._slow = SlowAnswers()
        # Tasks of requests that get an answer and wait for actions of other clients.
        self._awaited: set[asyncio.Task[None]] = set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if isinstance(transport, RelayedTransport) and self.port.may_repeat:
            self._repeats = RepeatedCalls(transport, self.service, self.node.access)
        self.on_made(self)

    def data_received(self, data: bytes) -> None:
        if self._repeats is None:
            super().data_received(data)
            return
        self._pushed = None
        is_whole = self._is_between()
        super().data_received(data)
        is_alone = is_whole and self._is_between() and self.producer is None
        self._repeats.received(data, self._pushed if is_alone else None, self.principal, self.last_number)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.service.pulls.abandon(self)
        for delivered, unsent in self._encoding.values():
            self.service.pulls.put_back(delivered, unsent)
        self._encoding.clear()
        self.on_lost(self)

    async def answer_rest(self) -> None:
        """Close the connection once everything is answered, at the latest after `HALF_CLOSED_S`.

        A client whose pulls wait may be gone, and the pulls would take messages in vain. So the start of a response,
        which is the same for all responses, is sent first to detect that. Later, a reset ends the connection.
        """
        try:
            async with asyncio.timeout(HALF_CLOSED_S):
                await until(lambda: not self.has_rest)
                await until_applied(self.service.sender.proposer)
                if self._waits_for_answers():
                    self.begin_answer()
                    if not await wait_for_acknowledgement(self._transport):
                        self.place.abort()
                        return
                await until(lambda: not self.has_unanswered or is_gone(self._transport))
        except TimeoutError:
            # The remaining requests are abandoned.
            self.expel()
        else:
            self.close()

    @property
    def has_unanswered(self) -> bool:
        return super().has_unanswered or self.service.pulls.is_looking(self)

    def _waits_for_answers(self) -> bool:
        """Return whether pulls, pushes or locks wait whose client gets an answer."""
        return bool(self._awaited) or any(waiter.token is not NOTIFICATION for waiter in self.waiting)

    def expel(self) -> None:
        """Send all finished responses and close. Messages in flight to the client's pulls return to their queues."""
        if not self.closed:
            self._flush()
            self.closed = True
            self.service.pulls.abandon(self)
            self._transport.close()

    def peer(self) -> str:
        """Return the address of the client."""
        address: Any = self.place.address
        return f"{address[0]}:{address[1]}" if address else "?"

    # --- who it is --------------------------------------------------------------------------------------------------

    def admit(self, principal: Principal | None, methods: Mapping[bytes, Handler]) -> None:
        """Set the client's principal and the methods that it may call."""
        self.principal, self._methods = principal, methods
        self.place.user = "" if principal is None else principal.name

    def authenticate(self, secret: bytes) -> None:
        """Authenticate the client by a token.

        Raises:
            LmqError: ``unauthorized``; ``conflict`` if another token was shown before; ``no_leader`` if the tokens are
                not known yet.
        """
        if self.principal is not None and self.principal is self.node.access.anonymous:
            return
        if self.node.access.outside is not None:
            raise self.node.access.outside.again()
        principal = self.node.access.authenticate(secret, self.place)
        if self.principal is not None and self.principal is not principal:
            # Its waiting pulls belong to the previous principal.
            raise LmqError("conflict", "this connection has shown another token already", retryable=False)
        self.principal = principal
        self.place.user = principal.name

    def known_principal(self) -> Principal:
        """Return the client's principal.

        Raises:
            LmqError: the client has not authenticated.
        """
        if self.principal is None:
            raise self.node.access.refusal()
        return self.principal

    def kept_for(self) -> bytes:
        """Return the owner of the state that the state machine keeps for the client."""
        return b"" if self.principal is None else self.principal.owner

    def state_owner(self) -> bytes:
        """Return the owner of a command whose effect the state machine keeps for the client.

        Raises like `known_principal`.
        """
        return self.known_principal().owner

    def client(self) -> bytes:
        """Return the name of the client whose share of the node the requests use."""
        return client_of(self.node.access, self.known_principal(), self.peer())

    # --- requests -------------------------------------------------------------------------------------------------

    def dispatch(self, message: Any) -> None:
        """Carry out one request or notification.

        Raises:
            ValueError, LmqError: the message is neither.
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
            checked_msgid(msgid)
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
                if method not in _SHARING or len(arguments) > 2:
                    self.last_number = self.service.sender.proposer.last_number
        except LmqError as exc:
            if method in _PUSHES:
                self.push_refused(exc)
            self.fail(msgid, exc.rpc_text())
            forget_frames(exc)

    def _charge(self, method: bytes, arguments: list[Any]) -> None:
        """Charge the client for a request.

        Raises:
            LmqError: ``overloaded`` if its address has used up its request rate.
        """
        if self.place.client.requests.take(self.loop.time()):
            self.next_sequence += pushes_of(method, arguments)
            raise LmqError("overloaded", "this address sends more requests a second than it may; wait a little")

    def bind(self, producer: bytes, first_sequence: int) -> None:
        """Number later pushes for a producer. Only lmqcluster's own client uses this."""
        self.producer, self.next_sequence, self.push_error = producer, first_sequence, None
        self.producer_owner = self.state_owner()
        self._encoder = None

    def take_numbers(self, method: bytes, arguments: list[Any]) -> int | None:
        """Return the number of the first of these pushes, None if they take no numbers.

        Refused pushes use up their numbers too, so that the client and the node keep counting alike.

        Raises:
            LmqError: an earlier push was refused, see `push_refused`.
        """
        count = pushes_of(method, arguments)
        if not count:
            return None
        first = self.next_sequence
        self.next_sequence += count
        if self.push_error is not None:
            raise self.push_error.again()
        return first

    def push_refused(self, error: LmqError) -> None:
        """Handle the refusal of a push.

        If a producer's push can be retried, its later pushes must not overtake it: stored under a higher number, they
        would make the refused one look like a duplicate. So they are refused too, until the producer binds again.
        """
        # Numbers within a command have no gaps.
        self.last_number = self.service.sender.proposer.last_number + 1
        if self.producer is not None and error.retryable and error.outcome == Outcome.NOT_APPLIED:
            self.push_error = error.again()

    def add(self, pending: PendingCommand, size_bytes: int) -> None:
        """Send a command; hold back later ones while too many copies are pending. Raises like `Proposer.add`."""
        proposer = self.service.sender.proposer
        proposer.add(pending, size_bytes)
        self.last_number = pending.number
        proposer.pace(pending, self)

    def may_wait(self) -> bool:
        """Return whether one more pull may wait (`DeliverySink`)."""
        return len(self.waiting) < UNCOUNTED_WAITERS or self.hold_reserve()

    def run(self, msgid: Any, result: Coroutine[Any, Any, bytes], *, large: bool = False, waits: bool = False) -> None:
        """Answer a request that takes several steps with the encoded result of a coroutine; see `SlowAnswers.run`."""
        succeed, fail = partial(self.show if large else self.succeed, msgid), partial(self.fail, msgid)
        task = self._slow.run(self, result, succeed, fail, large=large, waits=waits)
        if waits and msgid is not NOTIFICATION:
            self._awaited.add(task)
            task.add_done_callback(self._awaited.discard)

    def run_packed(
        self, msgid: Any, result: Callable[[], Awaitable[Any]], *, large: bool = False, waits: bool = False
    ) -> None:
        """Answer like `run`, with the result of this function. It is called when the response is made, which may never happen."""

        async def packed() -> bytes:
            return pack(await result())

        self.run(msgid, packed(), large=large, waits=waits)

    def note_push(self, queue: bytes, msgid: Any) -> None:
        """Note a push without options, which may be the first of many alike."""
        if self._repeats is not None and msgid is not NOTIFICATION:
            self._pushed = queue

    # --- outcomes -------------------------------------------------------------------------------------------------

    def answer_ok(self, msgids: list[Any]) -> None:
        """Answer pushes or settlements that have succeeded; at least one."""
        if NOTIFICATION in msgids:
            msgids = [msgid for msgid in msgids if msgid is not NOTIFICATION]
        if msgids and not self.closed:
            self.write(replies.all_ok(msgids))

    def pulled(self, token: Any, delivered: list[Delivered]) -> None:
        """Answer a ``pull`` or ``pull_any`` (`DeliverySink`)."""
        if token is NOTIFICATION:
            return
        if not delivered:
            self.write(replies.success(token, replies.EMPTY))
            return
        try:
            result = self.encoder().encode(delivered[0])
        except replies.LargeBodyError:
            self.encode_later(token, delivered, self._send_one)
            return
        self._send_one(token, delivered, [result])

    def _send_one(self, token: Any, delivered: list[Delivered], encoded: list[bytes]) -> None:
        result = encoded[0]
        if self.must_ask(len(result)) and not self.has_room(len(result)):
            self.put_back(token, delivered)
        elif len(result) < LARGE_BYTES:
            self.write(replies.success(token, result))
        else:
            self.write(replies.success(token, b""))
            self.write(result)

    def encode_later(self, token: Any, delivered: list[Delivered], send: _Send, unsent: Unsent = Unsent.UNDO) -> None:
        """Encode messages with large bodies, then send them."""
        self._encoding[id(delivered)] = delivered, unsent
        # The pull has taken effect, so later requests continue.
        result = self._encode(token, delivered, send)
        self._slow.run(self, result, _nothing, partial(self.fail, token), large=False, waits=True)

    async def _encode(self, token: Any, delivered: list[Delivered], send: _Send) -> bytes:
        encoder, encoded, size = self.encoder(), [], 0
        async with self._encodings:
            for one in delivered:
                encoded.append(await encoder.encode_in_turns(one))
                size += len(encoded[-1])
                if size > MANY_BYTES_MAX:
                    break
        if not self.closed:
            del self._encoding[id(delivered)]
            send(token, delivered, encoded)
        return b""

    def is_answered(self, msgid: Any) -> bool:
        """Return whether the client gets an answer; it gets none to a notification."""
        return msgid is not NOTIFICATION

    def put_back(self, msgid: Any, delivered: list[Delivered], unsent: Unsent = Unsent.UNDO) -> None:
        """Refuse a pull because the client has left no room for its messages."""
        self.service.pulls.put_back(delivered, unsent)
        self.fail(msgid, _UNREAD)

    def encoder(self) -> replies.DeliveryEncoder:
        """Return the encoder for ids of the current incarnation of the cluster."""
        receipts = self.service.receipts()
        if self._encoder is None or self._encoder.receipts is not receipts:
            typed = self.producer is not None
            self._encoder = replies.DeliveryEncoder(
                receipts, typed=typed, transcoder=self.port.transcoder, unix_us=self.service.unix_us
            )
        return self._encoder

    def pull_failed(self, token: Any, error: LmqError) -> None:
        """Refuse a pull (`DeliverySink`)."""
        self.fail(token, error.rpc_text())

    def succeed(self, msgid: Any, result: bytes) -> None:
        """Answer with an encoded result."""
        if msgid is not NOTIFICATION:
            self.write(replies.success(msgid, result))

    def show(self, msgid: Any, result: bytes) -> None:
        """Answer a request that changes nothing; with an error if the client leaves too much unread."""
        if self.must_ask(len(result)) and not self.has_room(len(result)):
            self.fail(msgid, _UNREAD)
        else:
            self.succeed(msgid, result)

    def fail(self, msgid: Any, error_text: str) -> None:
        """Answer with an error."""
        if msgid is not NOTIFICATION:
            self.write(replies.failure(msgid, error_text))
