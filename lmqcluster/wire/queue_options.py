"""The properties of a queue beyond LMQ's: names, units, what each does, and which values it takes."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from .errors import LmqError
from .limits import NAME_BYTES_MAX

__all__ = ["QUEUE_OPTIONS", "QueueOption", "parse_option"]

DESTINATIONS_MAX = 100
_COUNT_MAX = 1 << 62
_SECONDS_MAX = float(1 << 60) / 1e6
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def _count(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _COUNT_MAX:
        raise ValueError("must be an integer, 0 or more")
    return value


def _seconds(value: object) -> int | float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= _SECONDS_MAX:
        raise ValueError("must be a number of seconds, 0 or more")
    return value


def _positive_seconds(value: object) -> int | float:
    seconds = _seconds(value)
    if seconds == 0:
        raise ValueError("must be more than 0 seconds")
    return seconds


def _factor(value: object) -> int | float:
    if (
        isinstance(value, bool)
        or not isinstance(value, (int, float))
        or not math.isfinite(value)
        or not 1 <= value <= 100
    ):
        raise ValueError("must be a number from 1 to 100")
    return value


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError("must be true or false")
    return value


def _queue(value: object) -> str:
    try:
        name = value.decode() if isinstance(value, bytes) else value
        size = len(name.encode()) if isinstance(name, str) else 0
    except UnicodeError:
        raise ValueError("must be the name of a queue in UTF-8") from None
    if not isinstance(name, str) or not 0 < size <= NAME_BYTES_MAX or _CONTROL.search(name):
        raise ValueError(f"must be the name of a queue: 1 to {NAME_BYTES_MAX} bytes without control characters")
    return name


def _queues(value: object) -> list[str]:
    if not isinstance(value, (list, tuple)) or len(value) > DESTINATIONS_MAX:
        raise ValueError(f"must be a list of at most {DESTINATIONS_MAX} names of queues")
    return list(dict.fromkeys(map(_queue, value)))


class QueueOption(NamedTuple):
    """One property.

    Attributes:
        unit: of its value: ``messages``, ``bytes``, ``seconds``, ``factor``, ``flag``, ``queue`` or ``queues``.
        check: returns a value in its canonical form, or raises ValueError.
        text: what it does.
    """

    unit: str
    check: Callable[[object], object]
    text: str


QUEUE_OPTIONS: Mapping[str, QueueOption] = {
    "max_items": QueueOption("messages", _count, "How many messages may wait, those that are not due yet included."),
    "max_size": QueueOption("bytes", _count, "The queue is full when the bodies that wait have so many bytes."),
    "max_item_size": QueueOption("bytes", _count, "The largest body that the queue takes."),
    "discard_old_when_full": QueueOption("flag", _flag, "A push to the full queue discards what is oldest; it is not refused."),
    "delay": QueueOption("seconds", _seconds, "How long after its push a message that does not say so itself becomes due."),
    "max_age": QueueOption("seconds", _positive_seconds, "How long after its push a message may be delivered."),
    "max_queue_age": QueueOption("seconds", _positive_seconds, "How long after its creation the empty queue is deleted."),
    "expire_to_queue": QueueOption("queue", _queue, "The queue that gets the messages whose time is over."),
    "dead_letter_queue": QueueOption("queue", _queue, "The queue that gets the messages that have no deliveries left."),
    "retry_delay": QueueOption("seconds", _seconds, "How much later a message becomes due that comes back from a delivery."),
    "retry_backoff": QueueOption("factor", _factor, "Multiplies the retry delay with each further delivery."),
    "retry_delay_max": QueueOption("seconds", _seconds, "The longest retry delay."),
    "destination_queues": QueueOption("queues", _queues, "An alias: pushes are passed on to these, it holds nothing."),
    "fanout_only": QueueOption("flag", _flag, "What is pushed goes to the bound queues alone."),
    "open_transaction_timeout": QueueOption("seconds", _positive_seconds, "How long a session may hold a message."),
    "exclusive": QueueOption("flag", _flag, "One session at a time pulls; the others stand by in the order in which they asked."),
}  # fmt: skip
"""By name. ``null`` takes a queue's own value away."""


def parse_option(name: str, value: object) -> object:
    """A value of one of these properties in its canonical form; None takes the queue's own value away.

    Raises:
        LmqError: ``bad_property``.
    """
    try:
        return None if value is None else QUEUE_OPTIONS[name].check(value)
    except ValueError as exc:
        raise LmqError("bad_property", f"property {name!r} {exc}") from None
