"""Ids of requests, which answers name. They are no secrets."""

from __future__ import annotations

from random import getrandbits

__all__ = ["new_id"]


def new_id() -> str:
    """Return a random UUID."""
    digits = f"{getrandbits(128):032x}"
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-a{digits[17:20]}-{digits[20:]}"
