"""Names of queues in paths."""

from __future__ import annotations

from ...wire.errors import LmqError
from ..http.server.requests.target import check_name

__all__ = ["checked"]


def checked(name: bytes) -> bytes:
    """Return a queue's name if queued would accept it.

    Raises:
        LmqError: ``bad_name``.
    """
    if name in (b".", b"..") or b"/" in name or b"\\" in name:
        raise LmqError("bad_name", "a queue name must not be . or .., and must not hold a slash")
    return check_name(name)
