"""One call under way: what to send, what becomes of the answer, and whether it may be sent again.

A call is *in doubt* once a connection was lost while it was unanswered: it may have taken effect. What that means differs by
kind, and this module is where it is decided:

* pushes carry a producer sequence number (or a key) under which the cluster stores them once, so they are sent again;
* acks, nacks and returns are sent again as repetitions: the cluster knows whether an earlier attempt settled the receipt;
* extends, property changes, deletes, purges, suspending, resuming and reads can be repeated harmlessly;
* pulls are sent again; a message that was on its way to us comes back when its lease ends; but if the node acknowledges what it
  sends, nothing comes back, so the outcome is unknown;
* transactions are sent again as repetitions: the settlements in them, or the keys of their pushes, tell whether they were done;
* a push to all queues of a pattern and a move cannot be repeated: their outcome is unknown.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from enum import Enum, auto
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from lmqcluster.wire.errors import LmqError
from lmqcluster.wire.legacy_msgpack import pack, pack_raw

from .replies import push_text
from .requests import name_bytes, request_body, unpack_body

if TYPE_CHECKING:
    from .shared_requests import SharedPull

__all__ = [
    "Call", "Control", "Moved", "NonRepeatableCall", "OptionPull", "Persistence", "Pull", "PullOptions", "Push", "PushMany",
    "Sender", "Settle", "SettleMany", "Settlement", "Transaction", "WaitingCall", "push_texts", "wait_left",
]  # fmt: skip

_packed_wait = lru_cache(maxsize=256)(pack)
_NO_LIMIT = pack(1e8)
"""Three years. The batch pull does not know a wait without limit, so no pull uses one."""
_LEAST_WAIT_S = 0.001
_ONE, _TWO = b"\x91", b"\x92"
_GONE = frozenset({"not_found", "queue_not_found"})


class Call:
    """A request that may be repeated harmlessly, and the future its caller awaits.

    Attributes:
        future: resolves to what `decode` makes of the result.
        body: the request after its msgid.
        decode: result element to value; may raise anything for a result that makes no sense.
        item: what is the call's own in a request that it shares.
        share: what calls must have in common to share a request, see `shared_requests`; None for a request of its own.
        deadline: loop time in seconds after which the call fails with a timeout.
        serial: position among the requests of the connection it was last sent on.
        doubt: whether an earlier attempt may have taken effect.
    """

    __slots__ = ("body", "deadline", "decode", "doubt", "future", "item", "serial", "share")

    waits = False
    """Whether the node may hold the answer back for as long as it likes."""
    gives_back = False
    """Whether the messages of an answer that nobody awaits any more return to their queue."""

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
        """Tell the caller."""
        if not self.future.done():
            self.future.set_exception(error)

    def refused(self, error: LmqError) -> None:
        """Take an error answer that is no reason to try again."""
        self.fail(error)

    def lost(self, reason: str) -> bool:  # noqa: ARG002 - subclasses need it
        """The answer will never come. Returns whether the call is to be sent again."""
        self.doubt = True
        self.share = None
        return not self.future.done()

    def parked(self, now: float, timeout_s: float) -> None:
        """Called when the call has to wait to be sent (again)."""

    def renew(self, now: float) -> None:
        """Called before the call is sent, first or again, other than on the straight path."""


class Sender(Protocol):
    """Takes calls; their futures tell what came of them."""

    def submit_push(self, call: Push, /) -> None:
        """Take a push."""

    def submit(self, call: Call, /) -> None:
        """Take any other call."""

    def enqueue(self, call: Call, /) -> None:
        """Take a large call, of any kind."""


class WaitingCall(Call):
    """A request that the node may hold back for a time that it names; sent again, it waits for what is left.

    Attributes:
        make: the body for so many seconds.
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
        """Wait at the node for what is left of the time."""
        self.body = self.make(max(_LEAST_WAIT_S, self.wait_until - now))


class NonRepeatableCall(Call):
    """A request that must not be repeated if it may have taken effect."""

    __slots__ = ()

    def lost(self, reason: str) -> bool:
        """Give up: the outcome is unknown."""
        self.fail(LmqError("unknown_outcome", f"there was no answer, and the request cannot be repeated: {reason}"))
        return False


class Control(Call):
    """A request of the connection's own, which ends with it."""

    __slots__ = ()

    def lost(self, reason: str) -> bool:
        """Fail: it was about this connection."""
        self.fail(LmqError("unreachable", reason))
        return False


class Push(Call):
    """A push under a producer sequence number.

    Attributes:
        sequence: number of its (first) content, 0 until it is sent.
        count: how many contents, and so numbers, it has.
    """

    __slots__ = ("count", "sequence")

    # Redefined instead of calling the parent's: this is the hot path.
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
    """What the body begins with; it is followed by the number of arguments."""

    def __init__(self, future: asyncio.Future[list[str]], body: bytes, deadline: float, count: int) -> None:
        Call.__init__(self, future, body, push_texts, deadline)
        self.sequence = 0
        self.count = count


def push_texts(results: Sequence[bytes]) -> list[str]:
    """The results of a batch push as `str`."""
    return list(map(push_text, results))


class Persistence(Enum):
    """How long the client repeats a settlement.

    Attributes:
        WHILE_AWAITED: until its caller has the outcome, or has gone.
        WHILE_UNKNOWN: until the outcome is known; the call fails after ``timeout_s`` with an unknown outcome.
        UNTIL_KNOWN: the same, and the caller waits for it.
    """

    WHILE_AWAITED = auto()
    WHILE_UNKNOWN = auto()
    UNTIL_KNOWN = auto()


class Settlement(Call):
    """A request that settles deliveries. In doubt it is repeated as one that asks what became of an earlier attempt.

    Attributes:
        ends: whether a receipt is dead afterwards, which is not so for extend.
        persistence: how long it is repeated if it ends a delivery.
    """

    __slots__ = ("ends", "persistence")

    ends: bool
    persistence: Persistence

    def renew(self, now: float) -> None:  # noqa: ARG002 - the parent's signature
        """In doubt, ask as for a repetition."""
        if self.doubt and self.ends:
            self.ask_again()

    def repetition(self) -> bytes:
        """The body of a repetition, by which two calls are known to ask for the same."""
        raise NotImplementedError

    def ask_again(self) -> None:
        """Become a repetition; of no effect the second time."""
        self.body = self.repetition()


class Settle(Settlement):
    """An ack, nack or extend of one message; the result is whether it found the lease alive."""

    __slots__ = ()

    # Redefined instead of calling the parent's: this is the hot path.
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
        """The body as a batch, because only the batch methods can be asked for a repetition."""
        if self.decode is not _is_ok:
            return self.body
        method, (queue, receipt, *options) = unpack_body(self.body)
        return request_body(method + b"_many", [queue, [receipt], _again(options)])

    def ask_again(self) -> None:
        """Become a repetition, which has a request of its own."""
        self.body = self.repetition()
        self.decode = _only_result
        self.share = None

    def refused(self, error: LmqError) -> None:
        """There is no such lease."""
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
    """Results of a repeated batch of settlements.

    Raises:
        LmqError: ``unknown_outcome``: the cluster does not know any more.
    """
    forgotten = results.count(None)
    if forgotten:
        reason = f"whether {forgotten} of {len(results)} receipts were settled is forgotten: the first answer was lost long ago"
        raise LmqError("unknown_outcome", reason)
    return [bool(result) for result in results]


def _again(options: list[Any]) -> dict[Any, Any]:
    """The last argument of a request that is a repetition."""
    return {"again": True, **(options[0] if options else {})}


class SettleMany(Settlement):
    """As `Settle` for several messages of one queue."""

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
        """The same batch."""
        if self._is_repetition:
            return self.body
        method, (queue, receipts, *options) = unpack_body(self.body)
        return request_body(method, [queue, receipts, _again(options)])

    def ask_again(self) -> None:
        """Become a repetition."""
        self.body = self.repetition()
        self._is_repetition = True

    def refused(self, error: LmqError) -> None:
        """There is no such queue."""
        if error.code not in _GONE:
            self.fail(error)
        elif not self.future.done():
            self.future.set_result([False] * self.count)


class Moved(Exception):  # noqa: N818 - not an error
    """A pull that was to go to another node has been answered as empty: nothing was on its way to it."""


class Pull(Call):
    """A pull of any kind, which may wait at the node.

    Its body ends with the time that is left to wait, so it is recreated when the call is sent again. A pull without limit has
    a deadline only while it cannot be sent.

    Attributes:
        head: the body up to the last argument, the timeout.
        moving: what `decode` is otherwise, while the pull is to leave the node it waits at.
        shared: the request that it shares, None if it has one of its own.
        wait_until: loop time in seconds, or None for no limit.
    """

    __slots__ = ("head", "moving", "shared", "wait_until")

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
        self.shared: SharedPull | None = None
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
        """Without a limit the time to find a node starts now."""
        if self.wait_until is None:
            self.deadline = now + timeout_s

    def move(self) -> None:
        """The node was asked to end the wait early: if its answer is empty, the pull goes to another node."""
        if self.moving is None:
            self.moving = decode = self.decode
            self.decode = lambda result: _unless_empty(decode(result))

    def renew(self, now: float) -> None:
        """Wait at the node for what is left of the time."""
        if self.moving is not None:
            self.decode, self.moving = self.moving, None
        if self.wait_until is None:
            self.deadline = math.inf
        else:
            self.body = self.head + wait_left(self, now)
        self.shared = None
        if self.share is not None:
            self.share = self.body


def wait_left(pull: Pull, now: float) -> bytes:
    """The last argument of a pull that is sent now."""
    return _NO_LIMIT if pull.wait_until is None else pack(max(0.0, pull.wait_until - now))


class PullOptions(NamedTuple):
    """How a pull takes its messages.

    Attributes:
        lease: how long the lease lasts, in seconds; None for what the queue says.
        auto_ack: whether the node acknowledges what it sends.
        session: id of the session with which the lease ends.
        after: id of the last message of the queue that arrived in the session, empty if none did; None to say nothing of it.
    """

    lease: float | None
    auto_ack: bool
    session: str | bytes | None = None
    after: str | bytes | None = None

    def packed(self) -> bytes:
        """As the last argument of a request."""
        options: dict[str, Any] = {"auto_ack": True} if self.auto_ack else {}
        if self.lease is not None:
            options["lease"] = self.lease
        if self.session is not None:
            options["session"] = name_bytes(self.session)
        if self.after is not None:
            options["after"] = name_bytes(self.after)
        return pack(options)


class OptionPull(Pull):
    """A pull with options, which stand behind the time to wait.

    Attributes:
        gives_back: False if the session's next pull returns the messages again: giving them back would take them from it.
        settles: whether the node acknowledges what it sends.
        tail: the options.
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
        """If messages may have been acknowledged and lost, the call fails."""
        if self.settles:
            text = f"there was no answer, so a message may have been acknowledged and lost: {reason}"
            self.fail(LmqError("unknown_outcome", text))
        return super().lost(reason)

    def renew(self, now: float) -> None:
        """As of other pulls."""
        super().renew(now)
        if self.wait_until is not None:
            self.body += self.tail


class Transaction(Settlement):
    """Several operations in one step."""

    __slots__ = ("_is_repetition",)

    HEAD = pack_raw(b"transaction")
    """What the body begins with; it is followed by the number of arguments."""

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
        """In doubt, ask as for a repetition, which the keys of pushes make possible where nothing is settled."""
        if self.doubt:
            self.ask_again()

    def repetition(self) -> bytes:
        """The same operations."""
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
