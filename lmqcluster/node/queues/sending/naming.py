"""Names of queues and subscriptions in messages for people."""

from __future__ import annotations

from ....wire.errors import LmqError
from ....wire.limits import NAME_BYTES_MAX

__all__ = ["no_queue", "no_subscription", "shown"]


def shown(name: bytes) -> str:
    """Return a name in quotes; bytes that are not UTF-8 or not printable are escaped."""
    return repr(name[:NAME_BYTES_MAX].decode("utf-8", "backslashreplace"))


def no_queue(name: bytes) -> LmqError:
    """Return the error for a queue that does not exist."""
    return LmqError("queue_not_found", f"there is no queue {shown(name)}")


def no_subscription(name: bytes) -> LmqError:
    """Return the error for a subscription that does not exist."""
    return LmqError("subscription_not_found", f"there is no subscription {shown(name)}")
