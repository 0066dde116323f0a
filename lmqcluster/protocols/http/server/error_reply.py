"""Answers to requests that the parser refuses."""

from __future__ import annotations

import re
from typing import Final

from aiohttp.http_exceptions import BadHttpMethod, HttpProcessingError, LineTooLong

__all__ = ["REQUEST_LINE_BYTES_MAX", "HeadTooLargeError", "refusal_of"]

REQUEST_LINE_BYTES_MAX: Final = 4096
# llhttp refuses an unknown method; the request line is only in the text of the error.
_MADE_UP_METHOD = re.compile(r"b['\"][!#$%&'*+.^_`|~0-9A-Za-z-]+ (?P<path>/\S*) HTTP/1\.[01]['\"]")


class HeadTooLargeError(HttpProcessingError):
    """Request line and headers that take too much memory."""

    code = 431


def refusal_of(exc: HttpProcessingError) -> tuple[int, bytes]:
    """Return the status and the header lines for a request that could not be parsed."""
    if isinstance(exc, HeadTooLargeError):
        return 431, b""
    if isinstance(exc, LineTooLong) and exc.args[1] == REQUEST_LINE_BYTES_MAX:
        return 414, b""
    if isinstance(exc, BadHttpMethod):
        made_up = _MADE_UP_METHOD.search(str(exc))
        if made_up is not None:
            segments = made_up["path"].partition("?")[0].rstrip("/").split("/")[1:]
            if segments[:1] != ["messages"]:
                return 501, b""
            return 405, b"allow: POST\r\n" if len(segments) > 2 else b"allow: GET, POST\r\n"
    return 400, b""
