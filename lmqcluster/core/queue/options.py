"""Queue properties beyond those of LMQ: limits, times, and the targets of messages that leave the queue."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

__all__ = ["OPTION_PROPERTIES", "TIME_US_MAX", "QueueOptions", "checked_option", "microseconds", "options_of"]

TIME_US_MAX = 1 << 60
_COUNT_MAX = 1 << 62
_NAME_BYTES_MAX = 255
_DESTINATIONS_MAX = 100
_BACKOFF_STEPS_MAX = 1_000
"""Number of deliveries after which the retry delay stops growing; bounds the computation if the factor is close to 1.
"""


class QueueOptions(NamedTuple):
    """These properties in the queue's working form. None, False, 0 or () means: not set.

    Attributes:
        max_items: most messages in line, delayed ones included.
        max_bytes: the queue is full if the bodies in line have this many bytes.
        max_item_bytes: the largest body.
        discard_old_when_full: a push to a full queue discards messages at its head instead of being refused.
        delay_us: time from push to due time, unless the message sets its own.
        max_age_us: time after its push at which a message expires.
        max_queue_age_us: time after its first use at which an empty queue is deleted.
        expire_to: the queue that gets expired messages.
        dead_letters: the queue that gets messages without deliveries left.
        retry_delay_us, retry_backoff, retry_delay_max_us: delay of a redelivery; the factor multiplies the delay with
            each further
            delivery, up to the maximum.
        destinations: the queue is an alias for these: it passes pushes on and stores nothing.
        fanout_only: pushes go to the bound queues only.
        exclusive: only one session at a time may pull.
        open_us: how long a session may hold a message that it pulled without a limit.
        key_window_us: how long keys of pushes count, exactly, for any body and any client.
        keys_by_group: they count in the group of their message, not in the whole queue.
    """

    max_items: int | None = None
    max_bytes: int | None = None
    max_item_bytes: int | None = None
    discard_old_when_full: bool = False
    delay_us: int = 0
    max_age_us: int | None = None
    max_queue_age_us: int | None = None
    expire_to: bytes = b""
    dead_letters: bytes = b""
    retry_delay_us: int = 0
    retry_backoff: float = 1.0
    retry_delay_max_us: int = TIME_US_MAX
    destinations: tuple[bytes, ...] = ()
    fanout_only: bool = False
    exclusive: bool = False
    open_us: int | None = None
    key_window_us: int | None = None
    keys_by_group: bool = False

    def retry_delay_after(self, deliveries: int) -> int:
        """Return the delay in microseconds before a message is due again after its n-th delivery."""
        # Multiplied step by step: unlike a power, a product is rounded the same on every machine.
        delay = float(self.retry_delay_us)
        for _ in range(1, min(deliveries, _BACKOFF_STEPS_MAX)):
            if delay >= self.retry_delay_max_us or self.retry_backoff == 1 or delay == 0:
                break
            delay *= self.retry_backoff
        return min(int(delay), self.retry_delay_max_us)


def _count(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= _COUNT_MAX:
        raise ValueError("must be an integer, 0 or more")
    return value


def _seconds(value: Any) -> float:
    if type(value) not in (int, float) or value * 0 != 0 or value < 0:
        raise ValueError("must be a number of seconds, 0 or more")
    number: float = value
    return number


def _positive_seconds(value: Any) -> float:
    if _seconds(value) == 0:
        raise ValueError("must be more than 0 seconds")
    number: float = value
    return number


def _factor(value: Any) -> float:
    if type(value) not in (int, float) or not 1 <= value <= 100:
        raise ValueError("must be a number from 1 to 100")
    number: float = value
    return number


def _flag(value: Any) -> bool:
    if type(value) is not bool:
        raise ValueError("must be true or false")
    return value


def _queue_name(value: Any) -> str:
    name = value.encode() if isinstance(value, str) else value
    if type(name) is not bytes or not 0 < len(name) <= _NAME_BYTES_MAX:
        raise ValueError("must be the name of a queue, 1 to 255 bytes")
    return name.decode()


def _queue_names(value: Any) -> tuple[str, ...]:
    if type(value) not in (list, tuple) or len(value) > _DESTINATIONS_MAX:
        raise ValueError(f"must be a list of at most {_DESTINATIONS_MAX} names of queues")
    return tuple(dict.fromkeys(map(_queue_name, value)))


def _key_scope(value: Any) -> str:
    scope = value.decode() if isinstance(value, bytes) else value
    if scope not in ("queue", "group"):
        raise ValueError("must be queue or group")
    return str(scope)


OPTION_PROPERTIES: Mapping[str, Callable[[Any], Any]] = {
    "max_items": _count,
    "max_size": _count,
    "max_item_size": _count,
    "discard_old_when_full": _flag,
    "delay": _seconds,
    "max_age": _positive_seconds,
    "max_queue_age": _positive_seconds,
    "expire_to_queue": _queue_name,
    "dead_letter_queue": _queue_name,
    "retry_delay": _seconds,
    "retry_backoff": _factor,
    "retry_delay_max": _seconds,
    "destination_queues": _queue_names,
    "fanout_only": _flag,
    "exclusive": _flag,
    "open_transaction_timeout": _positive_seconds,
    "key_window": _positive_seconds,
    "key_scope": _key_scope,
}
"""By name, the function that checks a value and returns its stored form."""


def checked_option(name: str, value: Any) -> Any:
    """Return a value of one of these properties in its stored form; None removes the queue's own value.

    Raises:
        ValueError: it is out of range.
    """
    try:
        return None if value is None else OPTION_PROPERTIES[name](value)
    except ValueError as exc:
        raise ValueError(f"property {name!r} {exc}") from None


def options_of(properties: Mapping[str, Any]) -> QueueOptions | None:
    """Translate effective properties; None if none of these is set."""
    if properties.keys().isdisjoint(OPTION_PROPERTIES):
        return None

    def time_us(name: str) -> int | None:
        return microseconds(properties[name]) if name in properties else None

    return QueueOptions(
        max_items=properties.get("max_items"),
        max_bytes=properties.get("max_size"),
        max_item_bytes=properties.get("max_item_size"),
        discard_old_when_full=properties.get("discard_old_when_full", False),
        delay_us=time_us("delay") or 0,
        max_age_us=time_us("max_age"),
        max_queue_age_us=time_us("max_queue_age"),
        expire_to=properties.get("expire_to_queue", "").encode(),
        dead_letters=properties.get("dead_letter_queue", "").encode(),
        retry_delay_us=time_us("retry_delay") or 0,
        retry_backoff=float(properties.get("retry_backoff", 1.0)),
        retry_delay_max_us=microseconds(properties.get("retry_delay_max", TIME_US_MAX)),
        destinations=tuple(name.encode() for name in properties.get("destination_queues", ())),
        fanout_only=properties.get("fanout_only", False),
        exclusive=properties.get("exclusive", False),
        open_us=time_us("open_transaction_timeout"),
        key_window_us=max(1, time_us("key_window") or 1) if "key_window" in properties else None,
        keys_by_group=properties.get("key_scope") == "group",
    )


def microseconds(seconds: float) -> int:
    """Convert seconds to microseconds, clamped so that sums of several do not overflow."""
    if isinstance(seconds, int):
        return max(-TIME_US_MAX, min(TIME_US_MAX, seconds * 1_000_000))
    if abs(seconds) > TIME_US_MAX:
        return TIME_US_MAX if seconds > 0 else -TIME_US_MAX
    return max(-TIME_US_MAX, min(TIME_US_MAX, round(seconds * 1_000_000)))
