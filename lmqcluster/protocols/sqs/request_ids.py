"""Ids of requests, which answers name."""

from __future__ import annotations

import os
from itertools import count
from typing import Final

__all__ = ["new_id"]

_digits: Final = os.urandom(10).hex()
_START: Final = f"{_digits[:8]}-{_digits[8:12]}-4{_digits[13:16]}-a{_digits[17:20]}-"
"""The random part of all ids of this process."""
_numbers: Final = count(int.from_bytes(os.urandom(4)))


def new_id() -> str:
    """Return a UUID that no other request has."""
    return f"{_START}{next(_numbers):012x}"
