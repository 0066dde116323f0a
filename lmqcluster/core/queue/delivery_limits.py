"""The limits of a queue's deliveries: messages in flight, and deliveries by time."""

from __future__ import annotations

from .expiry import NEVER
from .options import QueueOptions
from .rates import Rate
from .store import MessageStore

__all__ = ["DeliveryLimits"]

_GROUPS_MAX = 10_000
"""Most groups whose messages are counted to show what limits hold back."""


class DeliveryLimits:
    """The limits of one queue, by its options.

    Attributes:
        full_ns: log time at which the bucket of the queue's rate is full, see `Rate`.
    """

    __slots__ = ("_store", "full_ns")

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self.full_ns = 0

    def configure(self, options: QueueOptions | None) -> None:
        """Take new options, before the store has them. A change of the rate fills the bucket."""
        if _rate_of(options) != _rate_of(self._store.settings.options):
            self.full_ns = 0

    def next_us(self) -> int | None:
        """Return when the next message can be delivered within the limits; None if none can before one in flight returns."""
        earliest_us, options = self._store.earliest_us(), self._store.settings.options
        if earliest_us is None or options is None:
            return earliest_us
        if options.in_flight_max is not None and len(self._store.leases) >= options.in_flight_max:
            earliest_us = self._store.leases.head_us()
        if options.rate is not None and earliest_us is not None:
            return max(earliest_us, options.rate.next_us(self.full_ns))
        return earliest_us

    def allowed(self, now_us: int, already: int = 0) -> int:
        """Return how many deliveries are allowed; `already` have been taken out of their lines and are not leased yet."""
        options, most = self._store.settings.options, NEVER
        if options is not None and options.in_flight_max is not None:
            most = max(0, options.in_flight_max - len(self._store.leases) - already)
        if options is not None and options.rate is not None:
            most = min(most, options.rate.available(self.full_ns, now_us))
        return most

    def charge(self, now_us: int, count: int) -> None:
        """Take the tokens of deliveries."""
        options = self._store.settings.options
        if count and options is not None and options.rate is not None:
            self.full_ns = options.rate.after(self.full_ns, now_us, count)

    def held_back(self, now_us: int) -> dict[str, int]:
        """Return how many messages that are due each limit holds back, by the name of its property."""
        store, options = self._store, self._store.settings.options
        if options is None or store.rich is None:
            return {}
        found: dict[str, int] = {}
        if options.in_flight_max is not None and len(store.leases) >= options.in_flight_max:
            found["max_in_flight"] = store.due_count(now_us)
        if options.rate is not None and not options.rate.available(self.full_ns, now_us):
            found["rate"] = store.due_count(now_us)
        if store.rich.fair is not None:
            found["group_max_in_flight"], found["group_rate"] = store.rich.fair.held_back(_GROUPS_MAX)
        return {name: count for name, count in found.items() if count}


def _rate_of(options: QueueOptions | None) -> Rate | None:
    return None if options is None else options.rate
