"""Requests that are one command of the log: built here for all protocols, with their approximate size in bytes.

A protocol with coroutines awaits the result of `CommandSender.ask`. MessagePack-RPC, whose requests take effect in
order of arrival, sends them at once and renders the results.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, Protocol

from ....core.log.commands import (
    Ack,
    Barrier,
    Command,
    Create,
    Delete,
    EndSession,
    Extend,
    Lock,
    Nack,
    OpenSession,
    Push,
    PushRows,
    RenewSession,
    SetDefaults,
    SetProperties,
    Unlock,
)
from ....wire.errors import LmqError
from ....wire.limits import NAME_BYTES_MAX
from ....wire.properties import AnnotationChanges, Properties, Rules, annotations_bytes, properties_bytes, rules_bytes
from .times import session_us

if TYPE_CHECKING:
    from .due_times import DueTimes
    from .push_items import PushItem

__all__ = [
    "Checks", "Request", "barrier", "check_lock_name", "clear_properties", "create", "delete", "end_session", "lock",
    "open_session",
    "push_plain", "push_rows", "renew_session", "set_defaults", "set_properties", "settle", "unlock",
]  # fmt: skip

_SMALL_BYTES = 64
_NUMBER_BYTES = 12
_NO_ANNOTATIONS: AnnotationChanges = MappingProxyType({})


class Checks(Protocol):
    """The checks of requests, which `CommandSender` provides."""

    def check_room(self, more_bytes: int = 0) -> None: ...


class Request(NamedTuple):
    """A command and its approximate size in the log in bytes."""

    command: Command
    size_bytes: int


def barrier() -> Request:
    """Wait until local reads show everything that was acknowledged anywhere before."""
    return Request(Barrier(), 16)


# --- messages ---------------------------------------------------------------------------------------------------------


def push_plain(
    queue: bytes, content_type: bytes, contents: list[bytes], producer: bytes | None, first: int, owner: bytes
) -> Request:
    """Store bodies; if there is a producer, they have its numbers from `first` on."""
    size = sum(map(len, contents)) + 8 * len(contents) + _SMALL_BYTES
    return Request(Push(queue, content_type, contents, producer, first, owner), size)


def push_rows(
    due_times: DueTimes,
    queue: bytes,
    items: Sequence[PushItem],
    owner: bytes,
    producer: bytes | None = None,
    first: int = 0,
    *,
    must_exist: bool = False,
) -> Request:
    """Store all messages or none; if there is a producer, they have its numbers from `first` on."""
    rows = [item.row(due_times) for item in items]
    size = _SMALL_BYTES + sum(item.size_bytes() for item in items)
    return Request(PushRows(queue, rows, owner, producer, first, must_exist), size)


def settle(command: Ack | Nack | Extend) -> Request:
    """Settle deliveries."""
    reason_bytes = len(command.reason) if isinstance(command, Nack) else 0
    return Request(command, _SMALL_BYTES + _NUMBER_BYTES * len(command.numbers) + reason_bytes)


# --- queues -----------------------------------------------------------------------------------------------------------


def create(
    queue: bytes,
    properties: Properties,
    annotations: AnnotationChanges = _NO_ANNOTATIONS,
    owner: bytes = b"",
    *,
    indexed: bool = False,
) -> Request:
    """Create a queue unless it exists; the result is whether it is new."""
    pairs, texts = [list(pair) for pair in properties], _rows(annotations)
    size = _SMALL_BYTES + properties_bytes(properties) + annotations_bytes(annotations)
    return Request(Create(queue, owner, pairs, indexed, texts), size)


def _rows(annotations: AnnotationChanges) -> list[list[bytes | None]]:
    return [[name.encode(), None if text is None else text.encode()] for name, text in annotations.items()]


def delete(queue: bytes) -> Request:
    """Delete a queue."""
    return Request(Delete(queue), _SMALL_BYTES)


def set_properties(
    queue: bytes,
    properties: Properties,
    annotations: AnnotationChanges = _NO_ANNOTATIONS,
    *,
    only_unset: bool = False,
    must_exist: bool = False,
) -> Request:
    """Set some of a queue's own properties and annotations; with `only_unset` only those that are not set."""
    pairs, texts = [list(pair) for pair in properties], _rows(annotations)
    size = _SMALL_BYTES + properties_bytes(properties) + annotations_bytes(annotations)
    return Request(SetProperties(queue, pairs, only_unset, annotations=texts, must_exist=must_exist), size)


def clear_properties(queue: bytes) -> Request:
    """Remove a queue's own properties."""
    return Request(SetProperties(queue, [], clears=True), _SMALL_BYTES)


def set_defaults(rules: Rules) -> Request:
    """Replace the default rules."""
    rows = [[pattern.encode(), [list(pair) for pair in properties]] for pattern, properties in rules]
    return Request(SetDefaults(rows), _SMALL_BYTES + rules_bytes(rules))


# --- sessions and locks -----------------------------------------------------------------------------------------------


def open_session(checks: Checks, ttl_s: float, owner: bytes) -> Request:
    """Begin a session; the result is its number. Raises ``bad_request`` and the errors of `Checks.check_room`."""
    ttl_us = session_us(ttl_s)
    checks.check_room()
    return Request(OpenSession(ttl_us, owner), _SMALL_BYTES)


def renew_session(number: int, owner: bytes) -> Request:
    """Renew a session for its full lifetime; the result is whether it is alive."""
    return Request(RenewSession(number, owner), _SMALL_BYTES)


def end_session(number: int, owner: bytes) -> Request:
    """End a session; the result is whether it was alive."""
    return Request(EndSession(number, owner), _SMALL_BYTES)


def lock(name: bytes, number: int, owner: bytes, *, waits: bool) -> Request:
    """Acquire a lock, or wait in line for it; the result is its token, or 0. Raises ``bad_name``."""
    check_lock_name(name)
    return Request(Lock(name, number, waits, owner), _SMALL_BYTES + len(name))


def unlock(name: bytes, number: int, owner: bytes) -> Request:
    """Release a lock, or leave its line; the result is whether the session held it or waited for it."""
    return Request(Unlock(name, number, owner), _SMALL_BYTES + len(name))


def check_lock_name(name: bytes) -> None:
    """Refuse an invalid name of a lock. Raises ``bad_name``."""
    if not 0 < len(name) <= NAME_BYTES_MAX:
        raise LmqError("bad_name", f"the name of a lock must have 1 to {NAME_BYTES_MAX} bytes, this has {len(name)}")
