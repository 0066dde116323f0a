"""Options of a ``get`` and the expiry of a ``set``."""

from __future__ import annotations

import time
from typing import NamedTuple

from ...wire.errors import LmqError
from ..kestrel.numbers import int32

__all__ = ["Get", "parse_get", "ttl_of"]

ABSOLUTE_S = 1_000_000
"""An expiry from this value on is a Unix time in seconds."""


class Get(NamedTuple):
    """A key with its options."""

    queue: bytes
    wait_ms: int = 0
    opens: bool = False
    closes: bool = False
    aborts: bool = False
    peeks: bool = False


def parse_get(key: bytes) -> Get:
    """Return the queue and the options of a key.

    Raises:
        LmqError: ``bad_request``: the options cannot be combined.
    """
    queue, *options = key.split(b"/")
    wait_ms = 0
    for option in options:
        if option.startswith(b"t="):
            number = int32(option[2:])
            if number is None:
                raise LmqError("bad_request", "the option t is no integer of 32 bits")
            wait_ms = max(0, number)
    asked = Get(queue, wait_ms, b"open" in options, b"close" in options, b"abort" in options, b"peek" in options)
    if not queue:
        raise LmqError("bad_request", "the name of the queue is missing")
    if (asked.peeks or asked.aborts) and (asked.opens or asked.closes):
        raise LmqError("bad_request", "peek and abort go with neither open nor close")
    if asked.peeks and asked.aborts:
        raise LmqError("bad_request", "peek and abort do not go together")
    return asked


def ttl_of(expiry: int) -> float | None:
    """Return the seconds until an item expires: None for never, 0 for immediately."""
    if expiry == 0:
        return None
    return max(0.0, float(expiry) if expiry < ABSOLUTE_S else expiry - time.time())
