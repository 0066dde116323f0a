"""The properties of a queue beyond LMQ's: names, units, effects and valid values."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from .errors import LmqError
from .limits import NAME_BYTES_MAX

__all__ = ["GROUP_MODES", "KEY_SCOPES", "QUEUE_OPTIONS", "RATE_MAX", "RATE_MIN", "QueueOption", "parse_option"]

DESTINATIONS_MAX = 100
GROUP_MODES = ("ordered", "fair")
KEY_SCOPES = ("queue", "group")
RATE_MIN, RATE_MAX = 0.001, 1_000_000
BURST_MAX = 1_000_000
DELIVERIES_MAX = 1_000_000
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


def _positive_count(value: object) -> int:
    count = _count(value)
    if count == 0:
        raise ValueError("must be an integer, 1 or more")
    return count


def _burst(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= BURST_MAX:
        raise ValueError(f"must be an integer from 1 to {BURST_MAX}")
    return value


def _deliveries(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= DELIVERIES_MAX:
        raise ValueError(f"must be an integer from 1 to {DELIVERIES_MAX}")
    return value


def _rate(value: object) -> int | float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not RATE_MIN <= value <= RATE_MAX:
        raise ValueError(f"must be a number of deliveries per second from {RATE_MIN} to {RATE_MAX}")
    return value


def _group_mode(value: object) -> str:
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else value
    if text not in GROUP_MODES:
        raise ValueError(f"must be {' or '.join(GROUP_MODES)}")
    return str(text)


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


def _key_scope(value: object) -> str:
    scope = value.decode(errors="replace") if isinstance(value, bytes) else value
    if not isinstance(scope, str) or scope not in KEY_SCOPES:
        raise ValueError(f"must be {' or '.join(KEY_SCOPES)}")
    return scope


class QueueOption(NamedTuple):
    """One property.

    Attributes:
        unit: unit of its value: ``messages``, ``bytes``, ``seconds``, ``factor``, ``per second``, ``mode``, ``flag``,
            ``queue``, ``queues`` or ``scope``.
        check: function that returns a value in its canonical form, or raises ValueError.
        text: effect.
    """

    unit: str
    check: Callable[[object], object]
    text: str


QUEUE_OPTIONS: Mapping[str, QueueOption] = {
    "max_items": QueueOption("messages", _count, "Most messages that may wait, including those that are not due yet."),
    "max_size": QueueOption("bytes", _count, "Most bytes that the bodies of waiting messages may have."),
    "max_item_size": QueueOption("bytes", _count, "The largest body that the queue accepts."),
    "discard_old_when_full": QueueOption("flag", _flag, "A push to the full queue discards the oldest messages."),
    "delay": QueueOption("seconds", _seconds, "The default delay of pushed messages."),
    "max_age": QueueOption("seconds", _positive_seconds, "The time after its push for which a message may be delivered."),
    "max_queue_age": QueueOption("seconds", _positive_seconds, "The age at which the queue is deleted if it is empty."),
    "expire_to_queue": QueueOption("queue", _queue, "The queue that gets expired messages."),
    "dead_letter_queue": QueueOption("queue", _queue, "The queue that gets messages without deliveries left."),
    "max_deliveries": QueueOption("messages", _deliveries, "Most deliveries of a message, beside the property retry."),
    "retry_delay": QueueOption("seconds", _seconds, "The delay of a redelivery."),
    "retry_backoff": QueueOption("factor", _factor, "The factor by which the retry delay grows with each redelivery."),
    "retry_delay_max": QueueOption("seconds", _seconds, "The longest retry delay."),
    "destination_queues": QueueOption("queues", _queues, "An alias forwards its pushes to these queues."),
    "fanout_only": QueueOption("flag", _flag, "Pushes go only to the bound queues."),
    "open_transaction_timeout": QueueOption("seconds", _positive_seconds, "The longest time a session may hold a message."),
    "group_mode": QueueOption("mode", _group_mode, "ordered: one message of a group at a time; fair: groups take turns."),
    "max_in_flight": QueueOption("messages", _positive_count, "Most messages that are under lease at one time."),
    "group_max_in_flight": QueueOption("messages", _positive_count, "The same for each group."),
    "rate": QueueOption("per second", _rate, "Most deliveries per second."),
    "rate_burst": QueueOption("messages", _burst, "Most deliveries at once, by default those of one second."),
    "group_rate": QueueOption("per second", _rate, "Most deliveries per second of each group of a fair queue."),
    "group_rate_burst": QueueOption("messages", _burst, "Most deliveries of a group at once."),
    "exclusive": QueueOption("flag", _flag, "Only one session at a time pulls; the others wait in the order of their requests."),
    "key_window": QueueOption("seconds", _positive_seconds, "The exact time for which the key of a push counts, for any body."),
    "key_scope": QueueOption("scope", _key_scope, "Where such a key counts: in the queue, or in the group of the message."),
}  # fmt: skip
"""Properties by name. The value ``null`` removes a queue's own value."""


def parse_option(name: str, value: object) -> object:
    """Return a value of one of these properties in its canonical form; None removes the queue's own value.

    Raises:
        LmqError: ``bad_property``.
    """
    try:
        return None if value is None else QUEUE_OPTIONS[name].check(value)
    except ValueError as exc:
        raise LmqError("bad_property", f"property {name!r} {exc}") from None
