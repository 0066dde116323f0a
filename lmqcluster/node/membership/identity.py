"""Ids of members that are not founders."""

from __future__ import annotations

import secrets

__all__ = ["fresh_id"]


def fresh_id() -> str:
    """A random member id; ids are never used again, because an id stands for what its owner has promised."""
    return f"n-{secrets.token_hex(4)}"
