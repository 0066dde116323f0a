"""How LMQ says no: a status, an empty body, and for a wrong method the list of the right ones."""

from __future__ import annotations

import re
from collections.abc import Callable

from ...wire.errors import LmqError
from .reply import Reply

__all__ = ["RETRY_AFTER", "WHO_ARE_YOU", "no_content", "on_error", "refuse"]

RETRY_AFTER = b"retry-after: 1\r\n"
"""Sent with every 503: an election takes about a second."""
WHO_ARE_YOU = b'www-authenticate: Bearer realm="lmqcluster"\r\n'
"""Sent with every 401."""
_EXPLANATION_CHARACTERS_MAX = 300
_UNPRINTABLE = re.compile(r"[^ -~]")


def no_content() -> Reply:
    """204: done, or nothing there."""
    return Reply(204)


def on_error(error: LmqError) -> Reply:
    """LMQ's status with an empty body; the reason stands in the header ``x-lmq-error``."""
    status = error.spec.http
    reason = _UNPRINTABLE.sub("?", error.message)[:_EXPLANATION_CHARACTERS_MAX]
    head = f"x-lmq-error: {error.code}: {reason}\r\n".encode("ascii")
    if status == 503:
        head += RETRY_AFTER
    elif status == 401:
        head += WHO_ARE_YOU
    return Reply(status, head, close=error.code == "too_large")


def refuse(allow: str | None = None) -> Callable[[int], Reply]:
    """The answer to a wrong method, 405 or 501; `allow` lists the right ones, where LMQ lists them."""
    line = f"allow: {allow}\r\n".encode() if allow else b""
    return lambda status: Reply(status, line if status == 405 else b"")
