"""Queue names that Kestrel's clients may use."""

from __future__ import annotations

import re

from ...wire.errors import LmqError
from ...wire.limits import NAME_BYTES_MAX

__all__ = ["check_name", "parent_of"]

_FORBIDDEN = re.compile(rb"[./~\x00-\x20\x7f]")


def check_name(name: bytes) -> None:
    """Refuse a name that Kestrel's clients may not use.

    Raises:
        LmqError: ``bad_name``.
    """
    if not 0 < len(name) <= NAME_BYTES_MAX:
        raise LmqError("bad_name", f"a queue name has 1 to {NAME_BYTES_MAX} bytes, this one has {len(name)}")
    if _FORBIDDEN.search(name):
        raise LmqError("bad_name", "a queue name has no dot, slash, tilde, space or control character")
    if name.startswith(b"+") or name.endswith(b"+"):
        raise LmqError("bad_name", "a queue name neither begins nor ends with a plus sign")


def parent_of(name: bytes) -> bytes | None:
    """Return the queue whose messages are copied to this one: the part before the first plus sign; None without one."""
    parent, plus, _ = name.partition(b"+")
    return parent if plus else None
