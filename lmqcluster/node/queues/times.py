"""Times that clients give, in microseconds of commands."""

from __future__ import annotations

from ...wire.errors import LmqError

__all__ = ["lease_us", "retry_delay_us"]

SECONDS_MAX = 1e9


def lease_us(lease_s: float) -> int:
    """A lease.

    Raises:
        LmqError: ``bad_request`` if it is not positive, or too long.
    """
    if not 0 < lease_s <= SECONDS_MAX:
        raise LmqError("bad_request", f"a lease is more than 0 and at most {SECONDS_MAX:.0f} seconds, not {lease_s}")
    return max(1, round(lease_s * 1e6))


def retry_delay_us(delay_s: float | None) -> int:
    """How much later a message becomes due that is given back, -1 for what its queue says.

    Raises:
        LmqError: ``bad_request`` if it is negative, or too long.
    """
    if delay_s is None:
        return -1
    if not 0 <= delay_s <= SECONDS_MAX:
        raise LmqError("bad_request", f"a delay is 0 to {SECONDS_MAX:.0f} seconds, not {delay_s}")
    return round(delay_s * 1e6)
