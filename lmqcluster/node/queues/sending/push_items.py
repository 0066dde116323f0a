"""Messages of a push and their results, for protocols."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

from ....core import PushFlag, Refusal
from ....wire.errors import LmqError
from .due_times import DueTimes

__all__ = ["PushItem", "PushOptions", "Stored", "check_all_stored", "refusal_of", "stored"]

TEXT_BYTES_MAX = 255
SECONDS_MAX = 1e9
DUE_S_MAX = 1e12
"""Later than the end of the year 9999, where most calendars end."""
PRIORITY_MAX = (1 << 31) - 1
_SHOWN_MAX = 10


@dataclass(frozen=True, slots=True)
class PushOptions:
    """Delivery options of a message.

    Attributes:
        delay_s: seconds until it becomes due; None for the queue's delay.
        due_s: Unix time at which it becomes due; None for at once, or after `delay_s`.
        ttl_s: seconds during which it may be delivered; None for the queue's limit.
        priority: 32 bits, lower comes first.
        label: the producer's name for it, by which it is found while it waits.
        group: messages of a group are delivered one at a time and in order, or take turns with those of other groups.
    """

    delay_s: float | None = None
    due_s: float | None = None
    ttl_s: float | None = None
    priority: int = 0
    label: bytes = b""
    group: bytes = b""

    def check(self) -> None:
        """Refuse invalid options.

        Raises:
            LmqError: ``bad_request``.
        """
        if self.delay_s is not None and self.due_s is not None:
            raise _wrong("a message has a delay or a due time, not both")
        if self.delay_s is not None and not 0 <= self.delay_s <= SECONDS_MAX:
            raise _wrong(f"a delay is 0 to {SECONDS_MAX:.0f} seconds, not {self.delay_s}")
        if self.due_s is not None and not 0 <= self.due_s <= DUE_S_MAX:
            raise _wrong(f"a due time is a Unix time of 0 to {DUE_S_MAX:.0f} seconds, not {self.due_s}")
        if self.ttl_s is not None and not 0 < self.ttl_s <= SECONDS_MAX:
            raise _wrong(f"a ttl is more than 0 and at most {SECONDS_MAX:.0f} seconds, not {self.ttl_s}")
        if not -PRIORITY_MAX - 1 <= self.priority <= PRIORITY_MAX:
            raise _wrong(f"a priority is an integer of 32 bits, not {self.priority}")
        for name, text in (("label", self.label), ("group", self.group)):
            if len(text) > TEXT_BYTES_MAX:
                raise _wrong(f"a {name} has at most {TEXT_BYTES_MAX} bytes, not {len(text)}")

    def row(self, due_times: DueTimes) -> list[Any]:
        """Return the traits of a command."""
        delay_us = -1 if self.delay_s is None else round(self.delay_s * 1e6)
        due_us = 0 if self.due_s is None else due_times.log_us(self.due_s)
        ttl_us = 0 if self.ttl_s is None else max(1, round(self.ttl_s * 1e6))
        return [delay_us, due_us, ttl_us, self.priority, self.label, self.group]


class PushItem(NamedTuple):
    """One message to store.

    Attributes:
        content: the body.
        content_type: as the producer gave it, None if it gave none.
        attributes: packed, see `lmqcluster.wire.attributes`.
        headers: (lower-case name, value); those that the queue's hooks name become attributes.
        key: idempotency key; a second push with it to the same queue within the window stores nothing; see `PushKey`.
        options: None for the defaults.
    """

    content: bytes
    content_type: bytes | None = None
    attributes: bytes = b""
    key: bytes | None = None
    options: PushOptions | None = None
    headers: tuple[tuple[bytes, bytes], ...] = ()

    def is_plain(self) -> bool:
        """Return whether it has at most a content type besides its body and its options."""
        return self.key is None and not self.attributes and not self.headers

    def copied_row(self) -> list[Any]:
        """Return the row of `PushEach`."""
        row = [self.content, self.content_type, self.attributes, self.key]
        return [*row, self._header_rows()] if self.headers else row

    def row(self, due_times: DueTimes) -> list[Any]:
        """Return the row of `PushRows`."""
        options = [] if self.options is None else self.options.row(due_times)
        row = [self.content, self.content_type, self.attributes, self.key, options]
        return [*row, self._header_rows()] if self.headers else row

    def _header_rows(self) -> list[list[bytes]]:
        return [list(header) for header in self.headers]

    def size_bytes(self) -> int:
        """Return its approximate size in the log in bytes."""
        headers = sum(len(name) + len(value) + 8 for name, value in self.headers) if self.headers else 0
        options = 0 if self.options is None else len(self.options.label) + len(self.options.group) + 48
        content = len(self.content) + len(self.content_type or b"") + len(self.attributes)
        return content + len(self.key or b"") + headers + options + 64


class Stored(NamedTuple):
    """The result of a push.

    Attributes:
        flag: a `PushFlag` that says neither full nor oversized.
        sequence: the number of the message in the cluster; None if the command does not return it.
    """

    flag: int
    sequence: int | None = None

    @property
    def told_sequence(self) -> int | None:
        """Return the sequence with which the message is delivered.

        None if the message joined others in a window, or if the command does not return it.
        """
        return None if self.flag & PushFlag.WINDOW_JOINED else self.sequence


def stored(flag: int, sequence: int) -> Stored:
    """Return the result of a push from the core's values; a sequence of 0 means that none was stored with the key."""
    return Stored(flag, sequence or None)


def refusal_of(flag: int) -> LmqError:
    """Return why a queue has not stored a message, from its flag of at least `PushFlag.FULL`, which is a `Refusal`."""
    refusal = cast("Refusal", flag)
    return LmqError(refusal.code, refusal.reason)


def check_all_stored(flags: Sequence[int]) -> None:
    """Refuse a batch unless the queue has stored every message.

    Raises:
        LmqError: the reason if none was stored, else ``stored_in_part``.
    """
    refused = [place for place, flag in enumerate(flags) if flag >= PushFlag.FULL]
    if not refused:
        return
    if len(refused) == len(flags):
        raise refusal_of(flags[refused[0]])
    shown = ", ".join(map(str, refused[:_SHOWN_MAX])) + (", ..." if len(refused) > _SHOWN_MAX else "")
    reason = f"{len(refused)} of {len(flags)} messages are not stored, numbers {shown} of the batch: "
    reason += refusal_of(flags[refused[0]]).message
    raise LmqError("stored_in_part", reason)


def _wrong(reason: str) -> LmqError:
    return LmqError("bad_request", reason)
