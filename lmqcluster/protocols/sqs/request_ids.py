"""Ids of requests, which answers name."""

from __future__ import annotations

import os

__all__ = ["new_id"]


def new_id() -> str:
    """Return a random UUID."""
    digits = os.urandom(16).hex()
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-a{digits[17:20]}-{digits[20:]}"
