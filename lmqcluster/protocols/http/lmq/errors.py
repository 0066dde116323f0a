"""LMQ's error answers: a status and an empty body, and the allowed methods if the method is wrong."""

from __future__ import annotations

import re
from collections.abc import Callable

from ....wire.errors import LmqError
from ..server.replies.common_replies import RETRY_AFTER, WWW_AUTHENTICATE
from ..server.replies.reply import Reply

__all__ = ["on_error", "refuse"]

_EXPLANATION_CHARACTERS_MAX = 300
_UNPRINTABLE = re.compile(r"[^ -~]")


def on_error(error: LmqError) -> Reply:
    """Return LMQ's status with an empty body. The header ``x-lmq-error`` has the reason."""
    status = error.spec.http
    reason = _UNPRINTABLE.sub("?", error.message)[:_EXPLANATION_CHARACTERS_MAX]
    head = f"x-lmq-error: {error.code}: {reason}\r\n".encode("ascii")
    if status == 503:
        head += RETRY_AFTER
    elif status == 401:
        head += WWW_AUTHENTICATE
    return Reply(status, head, close=error.code == "too_large")


def refuse(allow: str) -> Callable[[int], Reply]:
    """Return the answer to a wrong method, 405 or 501; `allow` lists the allowed methods."""
    line = f"allow: {allow}\r\n".encode()
    return lambda status: Reply(status, line if status == 405 else b"")
