"""Requests that are one command of the log: built here for all front ends, with their approximate size in bytes.

A front end with coroutines awaits the result of `CommandSender.ask`. MessagePack-RPC, whose requests take effect in
order of arrival, sends them at once and renders the results.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from ....core import Op
from ....core.log import command_layout as layout
from ....core.log.commands import Command
from ....wire.errors import LmqError
from ....wire.limits import NAME_BYTES_MAX
from ....wire.properties import Properties, Rules, properties_bytes, rules_bytes
from .times import session_us

if TYPE_CHECKING:
    from .due_times import DueTimes
    from .push_items import PushItem

__all__ = [
    "Checks", "Request", "barrier", "check_lock_name", "clear_properties", "delete", "end_session", "lock",
    "open_session",
    "push_items", "push_plain", "push_rows", "renew_session", "set_defaults", "set_properties", "settle", "unlock",
]  # fmt: skip

_SMALL_BYTES = 64
_NUMBER_BYTES = 12


class Checks(Protocol):
    """The checks of requests, which `CommandSender` provides."""

    def check_room(self, more_bytes: int = 0) -> None: ...


class Request(NamedTuple):
    """A command and its approximate size in the log in bytes."""

    command: Command
    size_bytes: int


def barrier() -> Request:
    """Wait until local reads show everything that was acknowledged anywhere before."""
    return Request(layout.barrier(), 16)


# --- messages ---------------------------------------------------------------------------------------------------------


def push_plain(
    queue: bytes, content_type: bytes, contents: list[bytes], producer: bytes | None, first: int, owned: Sequence[bytes]
) -> Request:
    """Store bodies; if there is a producer, they have its numbers from `first` on."""
    size = sum(map(len, contents)) + 8 * len(contents) + _SMALL_BYTES
    return Request(layout.push(queue, content_type, contents, producer, first, *owned), size)


def push_items(queue: bytes, items: Sequence[PushItem], owned: Sequence[bytes]) -> Request:
    """Store messages without options, each with an idempotency key or without one."""
    rows = [item.row() for item in items]
    return Request(layout.push_items(queue, rows, *owned), _SMALL_BYTES + _size(items))


def push_rows(
    due_times: DueTimes,
    queue: bytes,
    items: Sequence[PushItem],
    owned: Sequence[bytes],
    numbered: tuple[bytes, int] | None = None,
) -> Request:
    """Store all messages with options or none; `numbered` is a producer and its number of the first message."""
    rows = [item.row_with_options(due_times) for item in items]
    last = list(owned) if numbered is None else layout.owner_and_number(owned, *numbered)
    return Request(layout.push_rows(queue, rows, *last), _SMALL_BYTES + _size(items))


def _size(items: Sequence[PushItem]) -> int:
    return sum(item.size_bytes() for item in items)


def settle(op: Op, queue: bytes, numbers: list[int], *more: int) -> Request:
    """Settle deliveries by their numbers; `more` as in `layout.settle`."""
    return Request(layout.settle(op, queue, numbers, *more), _SMALL_BYTES + _NUMBER_BYTES * len(numbers))


# --- queues -----------------------------------------------------------------------------------------------------------


def delete(queue: bytes) -> Request:
    """Delete a queue."""
    return Request(layout.delete(queue), _SMALL_BYTES)


def set_properties(queue: bytes, properties: Properties, *, only_unset: bool = False) -> Request:
    """Set some of a queue's own properties; with `only_unset` only those that are not set."""
    pairs = [list(pair) for pair in properties]
    return Request(
        layout.set_properties(queue, pairs, only_unset=only_unset), _SMALL_BYTES + properties_bytes(properties)
    )


def clear_properties(queue: bytes) -> Request:
    """Remove a queue's own properties."""
    return Request(layout.clear_properties(queue), _SMALL_BYTES)


def set_defaults(rules: Rules) -> Request:
    """Replace the default rules."""
    rows = [[pattern.encode(), [list(pair) for pair in properties]] for pattern, properties in rules]
    return Request(layout.set_defaults(rows), _SMALL_BYTES + rules_bytes(rules))


# --- sessions and locks -----------------------------------------------------------------------------------------------


def open_session(checks: Checks, ttl_s: float, owned: Sequence[bytes]) -> Request:
    """Begin a session; the result is its number. Raises ``bad_request`` and the errors of `Checks.check_room`."""
    ttl_us = session_us(ttl_s)
    checks.check_room()
    return Request(layout.open_session(ttl_us, *owned), _SMALL_BYTES)


def renew_session(number: int, owned: Sequence[bytes]) -> Request:
    """Renew a session for its full lifetime; the result is whether it is alive."""
    return Request(layout.renew_session(number, *owned), _SMALL_BYTES)


def end_session(number: int, owned: Sequence[bytes]) -> Request:
    """End a session; the result is whether it was alive."""
    return Request(layout.end_session(number, *owned), _SMALL_BYTES)


def lock(name: bytes, number: int, owned: Sequence[bytes], *, waits: bool) -> Request:
    """Acquire a lock, or wait in line for it; the result is its token, or 0. Raises ``bad_name``."""
    check_lock_name(name)
    return Request(layout.lock(name, number, waits, *owned), _SMALL_BYTES + len(name))


def unlock(name: bytes, number: int, owned: Sequence[bytes]) -> Request:
    """Release a lock, or leave its line; the result is whether the session held it or waited for it."""
    return Request(layout.unlock(name, number, *owned), _SMALL_BYTES + len(name))


def check_lock_name(name: bytes) -> None:
    """Refuse an invalid name of a lock. Raises ``bad_name``."""
    if not 0 < len(name) <= NAME_BYTES_MAX:
        raise LmqError("bad_name", f"the name of a lock must have 1 to {NAME_BYTES_MAX} bytes, this has {len(name)}")
