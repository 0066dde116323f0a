"""Queue properties beyond those of LMQ: limits, times, and the targets of messages that leave the queue."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from .fair_groups import GroupLimits
from .rates import Rate

__all__ = [
    "GROUP_MODES",
    "OPTION_PROPERTIES",
    "TIME_US_MAX",
    "QueueOptions",
    "checked_option",
    "microseconds",
    "options_of",
]

TIME_US_MAX = 1 << 60
_COUNT_MAX = 1 << 62
_NAME_BYTES_MAX = 255
_DESTINATIONS_MAX = 100
_RATE_MIN, _RATE_MAX = 0.001, 1_000_000
_BURST_MAX = 1_000_000
_DELIVERIES_MAX = 1_000_000
GROUP_MODES = ("ordered", "fair")
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
        deliveries_max: a message that was delivered that often in this queue has no deliveries left, beside its retries;
            this counts when it would be delivered again.
        retry_delay_us, retry_backoff, retry_delay_max_us: delay of a redelivery; the factor multiplies the delay with
            each further
            delivery, up to the maximum.
        destinations: the queue is an alias for these: it passes pushes on and stores nothing.
        fanout_only: pushes go to the bound queues only.
        exclusive: only one session at a time may pull.
        open_us: how long a session may hold a message that it pulled without a limit.
        fair: groups take turns, and several messages of one may be in flight; see `FairGroups`.
        in_flight_max: most messages in flight.
        rate: most deliveries by time.
        group_limits: the same for each group. Without `fair`, a pull takes up to `group_limits.in_flight_max` messages of
            a group, by default one, and the group waits until all of them are settled.
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
    deliveries_max: int | None = None
    retry_delay_us: int = 0
    retry_backoff: float = 1.0
    retry_delay_max_us: int = TIME_US_MAX
    destinations: tuple[bytes, ...] = ()
    fanout_only: bool = False
    exclusive: bool = False
    open_us: int | None = None
    fair: bool = False
    in_flight_max: int | None = None
    rate: Rate | None = None
    group_limits: GroupLimits = GroupLimits()
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


def _positive_count(value: Any) -> int:
    if type(value) is not int or not 0 < value <= _COUNT_MAX:
        raise ValueError("must be an integer, 1 or more")
    return value


def _burst(value: Any) -> int:
    if type(value) is not int or not 0 < value <= _BURST_MAX:
        raise ValueError(f"must be an integer from 1 to {_BURST_MAX}")
    return value


def _deliveries(value: Any) -> int:
    if type(value) is not int or not 0 < value <= _DELIVERIES_MAX:
        raise ValueError(f"must be an integer from 1 to {_DELIVERIES_MAX}")
    return value


def _rate(value: Any) -> float:
    if type(value) not in (int, float) or not _RATE_MIN <= value <= _RATE_MAX:
        raise ValueError(f"must be a number of deliveries per second from {_RATE_MIN} to {_RATE_MAX}")
    number: float = value
    return number


def _group_mode(value: Any) -> str:
    text = value.decode() if isinstance(value, bytes) else value
    if text not in GROUP_MODES:
        raise ValueError(f"must be one of {', '.join(GROUP_MODES)}")
    return str(text)


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
    "max_deliveries": _deliveries,
    "retry_delay": _seconds,
    "retry_backoff": _factor,
    "retry_delay_max": _seconds,
    "destination_queues": _queue_names,
    "fanout_only": _flag,
    "exclusive": _flag,
    "open_transaction_timeout": _positive_seconds,
    "group_mode": _group_mode,
    "max_in_flight": _positive_count,
    "group_max_in_flight": _positive_count,
    "rate": _rate,
    "rate_burst": _burst,
    "group_rate": _rate,
    "group_rate_burst": _burst,
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
        deliveries_max=properties.get("max_deliveries"),
        retry_delay_us=time_us("retry_delay") or 0,
        retry_backoff=float(properties.get("retry_backoff", 1.0)),
        retry_delay_max_us=microseconds(properties.get("retry_delay_max", TIME_US_MAX)),
        destinations=tuple(name.encode() for name in properties.get("destination_queues", ())),
        fanout_only=properties.get("fanout_only", False),
        exclusive=properties.get("exclusive", False),
        open_us=time_us("open_transaction_timeout"),
        fair=properties.get("group_mode") == "fair",
        in_flight_max=properties.get("max_in_flight"),
        rate=_rate_of(properties.get("rate"), properties.get("rate_burst")),
        group_limits=GroupLimits(
            properties.get("group_max_in_flight"),
            _rate_of(properties.get("group_rate"), properties.get("group_rate_burst")),
        ),
        key_window_us=max(1, time_us("key_window") or 1) if "key_window" in properties else None,
        keys_by_group=properties.get("key_scope") == "group",
    )


def _rate_of(per_second: float | None, burst: int | None) -> Rate | None:
    """Return a rate; by default the burst is what one second allows."""
    if per_second is None:
        return None
    return Rate(round(1e9 / per_second), max(1, math.ceil(per_second)) if burst is None else burst)


def microseconds(seconds: float) -> int:
    """Convert seconds to microseconds, clamped so that sums of several do not overflow."""
    if isinstance(seconds, int):
        return max(-TIME_US_MAX, min(TIME_US_MAX, seconds * 1_000_000))
    if abs(seconds) > TIME_US_MAX:
        return TIME_US_MAX if seconds > 0 else -TIME_US_MAX
    return max(-TIME_US_MAX, min(TIME_US_MAX, round(seconds * 1_000_000)))
