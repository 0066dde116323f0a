"""Names of queues and subscriptions in messages for people."""

from __future__ import annotations

from ....wire.errors import LmqError
from ....wire.limits import NAME_BYTES_MAX

__all__ = ["no_queue", "no_subscription", "shown"]


def shown(name: bytes) -> str:
    """A name in quotes; what is not UTF-8 and what does not print is escaped."""
    return repr(name[:NAME_BYTES_MAX].decode("utf-8", "backslashreplace"))


def no_queue(name: bytes) -> LmqError:
    """The error where a queue should be."""
    return LmqError("queue_not_found", f"there is no queue {shown(name)}")


def no_subscription(name: bytes) -> LmqError:
    """The error where a subscription should be."""
    return LmqError("subscription_not_found", f"there is no subscription {shown(name)}")
