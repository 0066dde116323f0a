"""Calls in flight: what to send, how to decode the answer, and whether a retry is safe.

A call is *in doubt* if its connection was lost before the answer: it may have taken effect. This module decides for each kind of
call what the client does then:

* pushes carry a producer sequence number (or a key) under which the cluster stores them once, so the client retries them;
* acks, nacks and returns are retried as repetitions: the cluster knows whether an earlier attempt settled the receipt;
* extends, property changes, deletes, purges, suspends, resumes and reads are idempotent;
* pulls are retried; a message that was in flight is redelivered after its lease expires; but if the node acknowledges on sending,
  there is no redelivery, so the outcome is unknown;
* transactions are retried as repetitions: their settlements, or the keys of their pushes, show whether they were executed;
* a push to all queues of a pattern and a move cannot be retried: their outcome is unknown.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from enum import Enum, auto
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

from lmqcluster.wire.errors import LmqError
from lmqcluster.wire.legacy_msgpack import pack, pack_raw

from .replies import push_text
from .requests import name_bytes, request_body, unpack_body

__all__ = [
    "Call", "Control", "Moved", "NonRepeatableCall", "OptionPull", "Persistence", "Pull", "PullOptions", "Push", "PushMany",
    "Sender", "Settle", "SettleMany", "Settlement", "Transaction", "WaitingCall", "push_texts", "wait_left",
]  # fmt: skip

_packed_wait = lru_cache(maxsize=256)(pack)
_NO_LIMIT = pack(1e8)
"""Three years in seconds. The batch pull does not support an unlimited wait, so no pull uses one."""
_LEAST_WAIT_S = 0.001
_ONE, _TWO = b"\x91", b"\x92"
_GONE = frozenset({"not_found", "queue_not_found"})


class Call:
    """An idempotent request, and the future that its caller awaits.

    Attributes:
        future: resolves to the result that `decode` returns.
        body: the request after its msgid.
        decode: converts the result element to a value; may raise any exception for an invalid result.
        item: the part of a shared request that belongs to this call.
        share: key that calls must have in common to share a request, see `shared_requests`; None for a separate request.
        deadline: loop time in seconds after which the call fails with a timeout.
        serial: position among the requests of the connection it was last sent on.
        doubt: whether an earlier attempt may have taken effect.
    """

    __slots__ = ("body", "deadline", "decode", "doubt", "future", "item", "serial", "share")

    waits = False
    """True if the node may delay the answer indefinitely."""
    gives_back = False
    """True if messages return to their queue when the answer arrives after the caller was cancelled."""

    def __init__(self, future: asyncio.Future[Any], body: bytes, decode: Callable[[Any], Any], deadline: float) -> None:
        self.future = future
        self.body = body
        self.decode = decode
        self.deadline = deadline
        self.serial = 0
        self.doubt = False
        self.item = b""
        self.share: bytes | None = None

    def fail(self, error: LmqError) -> None:
        """Raise the error in the caller, unless the call is done."""
        if not self.future.done():
            self.future.set_exception(error)

    def refused(self, error: LmqError) -> None:
        """Handle an error answer that does not justify a retry."""
        self.fail(error)

    def lost(self, reason: str) -> bool:  # noqa: ARG002 - subclasses need it
        """Handle the loss of the answer. Return whether to send the call again."""
        self.doubt = True
        self.share = None
        return not self.future.done()

    def parked(self, now: float, timeout_s: float) -> None:
        """Prepare the call for waiting in the backlog, before its first or a later attempt."""

    def renew(self, now: float) -> None:
        """Prepare the call for sending from the backlog, for its first or a later attempt."""


class Sender(Protocol):
    """A sender of calls, whose futures receive the outcomes."""

    def submit_push(self, call: Push, /) -> None:
        """Send a push."""

    def submit(self, call: Call, /) -> None:
        """Send any other call."""

    def enqueue(self, call: Call, /) -> None:
        """Queue a large call of any kind for sending."""


class WaitingCall(Call):
    """A request that names how long the node may delay the answer; a retry waits for the remaining time.

    Attributes:
        make: returns the body for a wait in seconds.
        wait_until: loop time in seconds.
    """

    __slots__ = ("make", "wait_until")

    def __init__(
        self,
        future: asyncio.Future[Any],
        make: Callable[[float], bytes],
        decode: Callable[[Any], Any],
        now: float,
        wait_s: float,
        timeout_s: float,
    ) -> None:
        super().__init__(future, make(wait_s), decode, now + wait_s + timeout_s)
        self.make = make
        self.wait_until = now + wait_s

    def renew(self, now: float) -> None:
        """Set the wait at the node to the remaining time."""
        self.body = self.make(max(_LEAST_WAIT_S, self.wait_until - now))


class NonRepeatableCall(Call):
    """A request that must not be repeated if it may have taken effect."""

    __slots__ = ()

    def lost(self, reason: str) -> bool:
        """Fail, because the outcome is unknown."""
        self.fail(LmqError("unknown_outcome", f"there was no answer, and the request cannot be repeated: {reason}"))
        return False


class Control(Call):
    """A request that concerns the connection itself and ends with it."""

    __slots__ = ()

    def lost(self, reason: str) -> bool:
        """Fail, because the request concerned the lost connection."""
        self.fail(LmqError("unreachable", reason))
        return False


class Push(Call):
    """A push under a producer sequence number.

    Attributes:
        sequence: number of its (first) content, 0 until it is sent.
        count: number of contents, each of which takes one sequence number.
    """

    __slots__ = ("count", "sequence")

    # Hot path: a call of the parent's constructor would cost time.
    def __init__(
        self,
        future: asyncio.Future[str],
        body: bytes,
        deadline: float,
        share: bytes | None = None,
        item: bytes = b"",
    ) -> None:
        self.future = future
        self.body = body
        self.decode = push_text
        self.deadline = deadline
        self.doubt = False
        self.item = item
        self.share = share
        self.sequence = 0
        self.count = 1


class PushMany(Push):
    """Several pushes in one request."""

    __slots__ = ()

    HEAD = pack_raw(b"push_many")
    """First bytes of the body, before the number of arguments."""

    def __init__(self, future: asyncio.Future[list[str]], body: bytes, deadline: float, count: int) -> None:
        Call.__init__(self, future, body, push_texts, deadline)
        self.sequence = 0
        self.count = count


def push_texts(results: Sequence[bytes]) -> list[str]:
    """Return the results of a batch push as `str`."""
    return list(map(push_text, results))


class Persistence(Enum):
    """Condition that ends the retries of a settlement.

    Attributes:
        WHILE_AWAITED: retry until the caller has the outcome, or is cancelled.
        WHILE_UNKNOWN: retry until the outcome is known; the call fails after ``timeout_s`` with an unknown outcome.
        UNTIL_KNOWN: retry until the outcome is known; the caller waits for it.
    """

    WHILE_AWAITED = auto()
    WHILE_UNKNOWN = auto()
    UNTIL_KNOWN = auto()


class Settlement(Call):
    """A request that settles deliveries. If in doubt, the client repeats it and asks for the outcome of the earlier attempt.

    Attributes:
        ends: whether the request invalidates the receipt; false for extend.
        persistence: how long the client retries it, if it ends a delivery.
    """

    __slots__ = ("ends", "persistence")

    ends: bool
    persistence: Persistence

    def renew(self, now: float) -> None:  # noqa: ARG002 - the parent's signature
        """Become a repetition if in doubt."""
        if self.doubt and self.ends:
            self.ask_again()

    def repetition(self) -> bytes:
        """Return the body of a repetition, which is equal for equal requests."""
        raise NotImplementedError

    def ask_again(self) -> None:
        """Become a repetition; a no-op the second time."""
        self.body = self.repetition()


class Settle(Settlement):
    """An ack, nack or extend of one message; the result is whether the lease was still valid."""

    __slots__ = ()

    # Hot path: a call of the parent's constructor would cost time.
    def __init__(
        self,
        future: asyncio.Future[bool],
        body: bytes,
        deadline: float,
        ends: bool,
        persistence: Persistence,
        share: bytes | None = None,
        item: bytes = b"",
    ) -> None:
        self.future = future
        self.body = body
        self.decode = _is_ok
        self.deadline = deadline
        self.doubt = False
        self.item = item
        self.share = share
        self.ends = ends
        self.persistence = persistence

    def repetition(self) -> bytes:
        """Return the body as a batch, because only the batch methods support repetitions."""
        if self.decode is not _is_ok:
            return self.body
        method, (queue, receipt, *options) = unpack_body(self.body)
        return request_body(method + b"_many", [queue, [receipt], _again(options)])

    def ask_again(self) -> None:
        """Become a repetition, which shares no request."""
        self.body = self.repetition()
        self.decode = _only_result
        self.share = None

    def refused(self, error: LmqError) -> None:
        """Return False to the caller if the lease does not exist; otherwise fail."""
        if error.code not in _GONE:
            self.fail(error)
        elif not self.future.done():
            self.future.set_result(False)


def _is_ok(result: object) -> bool:
    if result != b"ok":
        raise ValueError("expected ok")
    return True


def _only_result(results: list[bool | None]) -> bool:
    (result,) = known_results(results)
    return result


def known_results(results: list[bool | None]) -> list[bool]:
    """Return the results of a repeated batch of settlements.

    Raises:
        LmqError: ``unknown_outcome``: the cluster no longer knows them all.
    """
    forgotten = results.count(None)
    if forgotten:
        reason = f"whether {forgotten} of {len(results)} receipts were settled is forgotten: the first answer was lost long ago"
        raise LmqError("unknown_outcome", reason)
    return [bool(result) for result in results]


def _again(options: list[Any]) -> dict[Any, Any]:
    """Return the last argument of a repetition."""
    return {"again": True, **(options[0] if options else {})}


class SettleMany(Settlement):
    """An ack, nack, extend or return of several messages of one queue."""

    __slots__ = ("_is_repetition", "count")

    def __init__(
        self,
        future: asyncio.Future[list[bool]],
        body: bytes,
        deadline: float,
        *,
        ends: bool,
        persistence: Persistence,
        count: int,
    ) -> None:
        super().__init__(future, body, self._results, deadline)
        self._is_repetition = False
        self.ends = ends
        self.persistence = persistence
        self.count = count

    def _results(self, results: list[bool | None]) -> list[bool]:
        if len(results) != self.count:
            raise ValueError(f"expected {self.count} results")
        return known_results(results)

    def repetition(self) -> bytes:
        """Return the body of the same batch as a repetition."""
        if self._is_repetition:
            return self.body
        method, (queue, receipts, *options) = unpack_body(self.body)
        return request_body(method, [queue, receipts, _again(options)])

    def ask_again(self) -> None:
        """Become a repetition."""
        self.body = self.repetition()
        self._is_repetition = True

    def refused(self, error: LmqError) -> None:
        """Return False for each message if the queue does not exist; otherwise fail."""
        if error.code not in _GONE:
            self.fail(error)
        elif not self.future.done():
            self.future.set_result([False] * self.count)


class Moved(Exception):  # noqa: N818 - not an error
    """Raised if the node answers a pull that moves to another node as empty: no message was in flight."""


class Pull(Call):
    """A pull of any kind, which may wait at the node.

    Its body ends with the remaining time to wait, so each retry has a new body. A pull without limit has a deadline only while
    it waits to be sent.

    Attributes:
        cancel_shared: cancels the request that it shares and returns its msgid, -1 for nothing to cancel; None for a
            separate one.
        head: the body up to the last argument, the timeout.
        moving: the original `decode` while the pull moves to another node, else None.
        wait_until: loop time in seconds, or None for no limit.
    """

    __slots__ = ("cancel_shared", "head", "moving", "wait_until")

    waits = True
    gives_back = True

    def __init__(
        self,
        future: asyncio.Future[Any],
        head: bytes,
        decode: Callable[[Any], Any],
        now: float,
        wait_s: float | None,
        timeout_s: float,
        *,
        may_share: bool = False,
    ) -> None:
        self.future = future
        self.decode = decode
        self.doubt = False
        self.head = head
        self.cancel_shared: Callable[[], int] | None = None
        self.moving: Callable[[Any], Any] | None = None
        if wait_s is None:
            self.body = head + _NO_LIMIT
            self.wait_until = None
            self.deadline = math.inf
        else:
            self.body = head + _packed_wait(wait_s)
            self.wait_until = now + wait_s
            self.deadline = now + wait_s + timeout_s
        self.share = self.body if may_share else None

    def parked(self, now: float, timeout_s: float) -> None:
        """Start the time to find a node, if the pull has no limit."""
        if self.wait_until is None:
            self.deadline = now + timeout_s

    def move(self) -> None:
        """Move the pull to another node if this node, asked to end the wait early, answers as empty."""
        if self.moving is None:
            self.moving = decode = self.decode
            self.decode = lambda result: _unless_empty(decode(result))

    def renew(self, now: float) -> None:
        """Set the wait at the node to the remaining time."""
        if self.moving is not None:
            self.decode, self.moving = self.moving, None
        if self.wait_until is None:
            self.deadline = math.inf
        else:
            self.body = self.head + wait_left(self, now)
        self.cancel_shared = None
        if self.share is not None:
            self.share = self.body


def wait_left(pull: Pull, now: float) -> bytes:
    """Return the last argument of a pull that is sent now."""
    return _NO_LIMIT if pull.wait_until is None else pack(max(0.0, pull.wait_until - now))


class PullOptions(NamedTuple):
    """Options of a pull.

    Attributes:
        lease: duration of the lease in seconds; None for that of the queue.
        auto_ack: whether the node acknowledges messages when it sends them.
        session: id of the session with which the lease ends.
        after: id of the last message of the queue that arrived in the session, empty if none did; None to omit it.
    """

    lease: float | None
    auto_ack: bool
    session: str | bytes | None = None
    after: str | bytes | None = None

    def packed(self) -> bytes:
        """Return the options as the last argument of a request."""
        options: dict[str, Any] = {"auto_ack": True} if self.auto_ack else {}
        if self.lease is not None:
            options["lease"] = self.lease
        if self.session is not None:
            options["session"] = name_bytes(self.session)
        if self.after is not None:
            options["after"] = name_bytes(self.after)
        return pack(options)


class OptionPull(Pull):
    """A pull with options, which follow the time to wait.

    Attributes:
        gives_back: False if the session's next pull returns the messages again: returning them to the queue would prevent that.
        settles: whether the node acknowledges messages when it sends them.
        tail: the encoded options.
    """

    __slots__ = ("gives_back", "settles", "tail")

    def __init__(
        self,
        future: asyncio.Future[Any],
        head: bytes,
        decode: Callable[[Any], Any],
        now: float,
        wait_s: float | None,
        timeout_s: float,
        options: PullOptions,
    ) -> None:
        super().__init__(future, head, decode, now, wait_s, timeout_s)
        self.gives_back = options.after is None
        self.settles = options.auto_ack
        self.tail = options.packed()
        self.body += self.tail

    def lost(self, reason: str) -> bool:
        """Fail if messages may have been acknowledged and lost."""
        if self.settles:
            text = f"there was no answer, so a message may have been acknowledged and lost: {reason}"
            self.fail(LmqError("unknown_outcome", text))
        return super().lost(reason)

    def renew(self, now: float) -> None:
        """Set the wait at the node to the remaining time, and append the options again."""
        super().renew(now)
        if self.wait_until is not None:
            self.body += self.tail


class Transaction(Settlement):
    """Several operations that take effect atomically."""

    __slots__ = ("_is_repetition",)

    HEAD = pack_raw(b"transaction")
    """First bytes of the body, before the number of arguments."""

    def __init__(
        self,
        future: asyncio.Future[Any],
        operations: bytes,
        decode: Callable[[Any], Any],
        deadline: float,
        *,
        ends: bool,
        persistence: Persistence,
    ) -> None:
        super().__init__(future, self.HEAD + _ONE + operations, decode, deadline)
        self._is_repetition = False
        self.ends = ends
        self.persistence = persistence

    def renew(self, now: float) -> None:  # noqa: ARG002 - the parent's signature
        """Become a repetition if in doubt. Without settlements, the keys of the pushes make that possible."""
        if self.doubt:
            self.ask_again()

    def repetition(self) -> bytes:
        """Return the body with the same operations as a repetition."""
        if self._is_repetition:
            return self.body
        return self.HEAD + _TWO + self.body[len(self.HEAD) + 1 :] + pack({"again": True})

    def ask_again(self) -> None:
        """Become a repetition."""
        self.body = self.repetition()
        self._is_repetition = True


def _unless_empty(pulled: Any) -> Any:
    if pulled is None or pulled == []:
        raise Moved
    return pulled
