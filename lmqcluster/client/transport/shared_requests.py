"""Coalescing of calls with the same method and queue, made in the same turn of the event loop, into one request.

A request costs the node and the client more than its contents. Each call keeps its number, deadline and outcome; only the bytes
are shared: pushes as ``push_each``, settlements as ``done_many`` and the like, pulls as ``pull_many``. A retry of a call with
unknown outcome is sent separately.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any, ClassVar, Final, Protocol, cast

from lmqcluster.wire.legacy_msgpack import pack, pack_raw

from .calls import Call, Pull, Push, Settle, wait_left
from .requests import pack_array

__all__ = ["CALLS_MAX", "ITEM_BYTES_MAX", "SHARED", "SharedPull", "SharedRequest"]

CALLS_MAX: Final = 256
"""Maximum number of calls that share a request."""
ITEM_BYTES_MAX: Final = 1024
"""Size of the largest message that shares a request. The cost of a larger one is in its bytes, so sharing saves little."""


class Answering(Protocol):
    """The connection of a shared request."""

    def take(self, call: Call) -> None:
        """Remove an answered call from the pending ones."""

    def answer(self, call: Call, result: Any) -> None:
        """Resolve the call with the node's answer."""

    def refuse(self, call: Call, element: Any) -> None:
        """Report an error answer to the call."""

    def late(self, call: Call, result: Any) -> None:
        """Report an answer that arrived after the caller was cancelled."""

    def ask_again(self, shared: SharedRequest) -> None:
        """Send a shared request again for its remaining calls."""

    def abort(self, reason: str) -> None:
        """End the connection."""


def _split(share: bytes) -> tuple[bytes, bytes]:
    """Return the method and the encoded queue name in the head of a request, see `Heads`."""
    end = 1 + (share[0] & 0x1F)
    return share[1:end], share[end + 1 :]


class SharedRequest:
    """A request of several calls, at least two when it is sent.

    Attributes:
        calls: its calls, in the order in which they were made.
        msgid: msgid of its last attempt.
        share: key that its calls have in common, see `Call`.
    """

    __slots__ = ("calls", "msgid", "share")

    def __init__(self, first: Call) -> None:
        self.share = first.share
        self.calls: list[Call] = [first]
        self.msgid = -1

    def add(self, call: Call) -> None:
        """Add a call."""
        self.calls.append(call)

    def live_calls(self) -> Iterable[Call]:
        """Return the calls that the next answer resolves."""
        return self.calls

    def body(self) -> tuple[bytes, ...]:
        """Return the request after its msgid."""
        raise RuntimeError(f"a subclass knows the request for {self.share!r}")

    def answered(self, connection: Answering, result: Any) -> None:
        """Resolve each call with its part of the node's answer."""
        calls = self.calls
        if type(result) is not list or len(result) != len(calls):
            connection.abort(f"the node answered {len(calls)} calls with {result!r:.200}")
            return
        for call, one in zip(calls, result, strict=True):
            connection.take(call)
            if type(one) is list:
                connection.refuse(call, one[0] if one else None)
            else:
                connection.answer(call, one)


class SharedPush(SharedRequest):
    """Pushes to one queue."""

    __slots__ = ()

    _HEAD: ClassVar = pack_raw(b"push_each") + b"\x92"

    def body(self) -> tuple[bytes, ...]:
        """Return ``push_each(queue, contents)``."""
        return self._HEAD, _split(self.share or b"")[1], pack_array([call.item for call in self.calls])


class SharedSettle(SharedRequest):
    """Acks, nacks or extends of messages of one queue."""

    __slots__ = ()

    def body(self) -> tuple[bytes, ...]:
        """Return ``done_many(queue, ids)`` and the like."""
        method, queue = _split(self.share or b"")
        return pack_raw(method + b"_many"), b"\x92", queue, pack_array([call.item for call in self.calls])

    def answered(self, connection: Answering, result: Any) -> None:
        """Convert each result to that of a single call: true to "ok", false to the error for a message without this lease."""
        if type(result) is list:
            result = [b"ok" if settled else [_NOT_FOUND] for settled in result]
        super().answered(connection, result)


_NOT_FOUND: Final = b"not_found: there is no such message under lease"


class SharedPull(SharedRequest):
    """Pulls from one queue with the same timeout.

    If an answer has fewer messages than calls, it resolves the first calls; the others keep waiting with a new shared request.
    """

    __slots__ = ("_is_cancelled", "_left")

    _HEAD: ClassVar = pack_raw(b"pull_many") + b"\x93"

    def __init__(self, first: Call) -> None:
        super().__init__(first)
        self._is_cancelled = False
        self._left: deque[Pull] = deque()
        self._join(first)

    def add(self, call: Call) -> None:
        """Add a pull."""
        super().add(call)
        self._join(call)

    def _join(self, call: Call) -> None:
        pull = cast("Pull", call)
        pull.cancel_shared = self.cancel
        self._left.append(pull)

    def live_calls(self) -> Iterable[Call]:
        """Return the pulls that are still waiting."""
        return self._left

    def drop_ended(self, connection: Answering) -> None:
        """Drop calls whose callers were cancelled."""
        ended = [call for call in self._left if call.future.done()]
        for call in ended:
            connection.take(call)
        if ended:
            self._left = deque(call for call in self._left if not call.future.done())

    def body(self) -> tuple[bytes, ...]:
        """Return ``pull_many(queue, max, timeout)``."""
        first = self._left[0]
        return (
            self._HEAD,
            _split(first.head)[1],
            pack(len(self._left)),
            wait_left(first, first.future.get_loop().time()),
        )

    def cancel(self) -> int:
        """Note that a caller was cancelled. Return the msgid to cancel at the node, which then answers early; -1 for none."""
        if self.msgid < 0 or self._is_cancelled:
            return -1
        self._is_cancelled = True
        return self.msgid

    def answered(self, connection: Answering, result: Any) -> None:
        """Resolve the first calls with the messages; an empty answer means that the timeout has elapsed."""
        if type(result) is not list or len(result) > len(self._left):
            connection.abort(f"the node answered {len(self._left)} pulls with {result!r:.200}")
            return
        last = self._left[-1]
        for message in result:
            call = self._next(connection)
            if call is None:
                connection.late(last, message)
            else:
                connection.take(call)
                connection.answer(call, message)
        if self._is_cancelled or not result:
            self.drop_ended(connection)
        if self._left and (result or self._is_cancelled) and self._left[0].moving is None:
            self._is_cancelled = False
            connection.ask_again(self)
            return
        while self._left:
            call = self._left.popleft()
            connection.take(call)
            connection.answer(call, b"empty")

    def _next(self, connection: Answering) -> Pull | None:
        while self._left:
            call = self._left.popleft()
            if not call.future.done():
                return call
            connection.take(call)
        return None


SHARED: Final[dict[type[Call], type[SharedRequest]]] = {Push: SharedPush, Settle: SharedSettle, Pull: SharedPull}
"""Classes of shared requests by class of call."""
