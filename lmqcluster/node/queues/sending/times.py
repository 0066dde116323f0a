"""Times given by clients, converted to the microseconds of commands."""

from __future__ import annotations

from ....wire.errors import LmqError

__all__ = ["SESSION_S_MAX", "WAIT_S_MAX", "lease_us", "retry_delay_us", "session_us", "wait_us"]

SECONDS_MAX = 1e9
SESSION_S_MAX = 3_600
"""Longest lifetime of a session without renewal, in seconds."""
WAIT_S_MAX = 86_400
"""Longest wait of a push, in seconds."""


def lease_us(lease_s: float) -> int:
    """Return the duration of a lease.

    Raises:
        LmqError: ``bad_request`` if it is not positive, or too long.
    """
    if not 0 < lease_s <= SECONDS_MAX:
        raise LmqError("bad_request", f"a lease is more than 0 and at most {SECONDS_MAX:.0f} seconds, not {lease_s}")
    return max(1, round(lease_s * 1e6))


def retry_delay_us(delay_s: float | None) -> int:
    """Return the delay after which a returned message becomes due, -1 for the queue's delay.

    Raises:
        LmqError: ``bad_request`` if it is negative, or too long.
    """
    if delay_s is None:
        return -1
    if not 0 <= delay_s <= SECONDS_MAX:
        raise LmqError("bad_request", f"a delay is 0 to {SECONDS_MAX:.0f} seconds, not {delay_s}")
    return round(delay_s * 1e6)


def session_us(ttl_s: float) -> int:
    """Return the lifetime of a session without renewal.

    Raises:
        LmqError: ``bad_request`` if it is not positive, or too long.
    """
    if not 0 < ttl_s <= SESSION_S_MAX:
        raise LmqError("bad_request", f"a session lives more than 0 and at most {SESSION_S_MAX} seconds, not {ttl_s}")
    return max(1, round(ttl_s * 1e6))


def wait_us(wait_s: float) -> int:
    """Return how long a push waits for room.

    Raises:
        LmqError: ``bad_request`` if it is not positive, or too long.
    """
    if not 0 < wait_s <= WAIT_S_MAX:
        raise LmqError("bad_request", f"a push waits more than 0 and at most {WAIT_S_MAX} seconds, not {wait_s}")
    return max(1, round(wait_s * 1e6))
