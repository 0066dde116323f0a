"""Ids of members that are not founders."""

from __future__ import annotations

import secrets

__all__ = ["fresh_id"]


def fresh_id() -> str:
    """Return a random member id. Ids are never reused, because votes and acknowledgements are bound to an id."""
    return f"n-{secrets.token_hex(4)}"
