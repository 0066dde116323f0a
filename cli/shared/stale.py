"""Answers that may be old: those of a node that is cut off from its cluster, which it marks with ``x-lmq-stale``."""

from __future__ import annotations

from contextvars import ContextVar

__all__ = ["note_stale", "take_stale"]

_address: ContextVar[str | None] = ContextVar("address", default=None)


def note_stale(address: str) -> None:
    """Note that the node at this address has given an answer that may be old."""
    _address.set(address)


def take_stale() -> str | None:
    """Return the warning about the answers since the last call; None if they were up to date."""
    address = _address.get()
    _address.set(None)
    if address is None:
        return None
    return (
        f"{address} is cut off from its cluster, and this may be old: it is what the node knew last; use another node, or see "
        "lmq-admin status"
    )
