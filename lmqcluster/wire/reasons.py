"""The reason of a nack: a short text that the cluster keeps as an attribute of the message."""

from __future__ import annotations

import traceback
from typing import Final

__all__ = ["REASON_ATTRIBUTE", "REASON_BYTES_MAX", "cut_reason", "reason_of"]

REASON_ATTRIBUTE: Final = "lmq.reason"
REASON_BYTES_MAX: Final = 1024
"""Most bytes of a reason in UTF-8. A longer one is cut, because a message must come back however long an error text is."""


def cut_reason(text: str | bytes) -> bytes:
    """Return a reason in UTF-8, cut after its last whole character. Bytes that are not UTF-8 are replaced."""
    if isinstance(text, bytes):
        text = text[:REASON_BYTES_MAX].decode(errors="replace")
    return text[:REASON_BYTES_MAX].encode(errors="replace")[:REASON_BYTES_MAX].decode(errors="ignore").encode()


def reason_of(error: BaseException) -> str:
    """Return type and text of an exception."""
    return "".join(traceback.format_exception_only(error)).strip()
