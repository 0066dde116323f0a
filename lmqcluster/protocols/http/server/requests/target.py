"""Request targets: path segments, queue names and query parameters as raw bytes.

Queue names are byte strings. They are percent-encoded; ``+`` means a space anywhere in the target, ``%2F`` is a slash
within a name. A trailing slash is ignored.
"""

from __future__ import annotations

import re
from urllib.parse import unquote_to_bytes

from .....wire.errors import LmqError
from .....wire.limits import NAME_BYTES_MAX, PATTERN_BYTES_MAX

__all__ = ["Query", "authority_of", "check_name", "decode", "has_control", "pattern_of", "split_target"]

_BAD_ESCAPE = re.compile(rb"%(?![0-9A-Fa-f]{2})")
_CONTROL = re.compile(rb"[\x00-\x1f\x7f]")
_AUTHORITY = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/?#]*")


def decode(text: str) -> bytes:
    """Percent-decode one segment, key or value from the HTTP parser.

    Raises:
        LmqError: ``bad_request`` if a percent sign is not followed by two hexadecimal digits.
    """
    raw = text.encode("utf-8", "surrogateescape")
    if b"+" in raw:
        raw = raw.replace(b"+", b" ")
    if b"%" not in raw:
        return raw
    if _BAD_ESCAPE.search(raw):
        raise LmqError("bad_request", "the request target holds a percent sign that is not followed by two hex digits")
    return unquote_to_bytes(raw)


def split_target(target: str) -> tuple[list[bytes], str]:
    """Split a request target into its decoded path segments and the raw query.

    The absolute form ``http://host/path`` is reduced to its path; a fragment is dropped.

    Raises:
        LmqError: ``bad_request`` for an invalid escape.
    """
    if not target.startswith("/"):
        target = _AUTHORITY.sub("", target, count=1) or "/"
    path, _mark, query = target.partition("#")[0].partition("?")
    segments = path.split("/")[1:]
    if segments and not segments[-1]:
        segments.pop()
    return [decode(segment) for segment in segments], query


def authority_of(target: str) -> str | None:
    """Return the host and port in the absolute form of a request target; None for a plain path."""
    match = None if target.startswith("/") else _AUTHORITY.match(target)
    return None if match is None else match[0].partition("://")[2]


def has_control(data: bytes) -> bool:
    """Return whether the bytes contain a control character, which must never reach a header."""
    return _CONTROL.search(data) is not None


def check_name(name: bytes) -> bytes:
    """Return a queue name if it is allowed in HTTP.

    Raises:
        LmqError: ``bad_name`` for an empty name, one over 255 bytes, or one with control characters.
    """
    if not 0 < len(name) <= NAME_BYTES_MAX:
        raise LmqError("bad_name", f"a queue name has 1 to {NAME_BYTES_MAX} bytes, this one has {len(name)}")
    if _CONTROL.search(name):
        raise LmqError("bad_name", "a queue name must not hold control characters")
    return name


class Query:
    """Parameters of a query string. The first value of a repeated one counts."""

    __slots__ = ("_values",)

    def __init__(self, query: str) -> None:
        """Parse the raw query.

        Raises:
            LmqError: ``bad_request`` for an invalid escape.
        """
        self._values: dict[bytes, bytes | None] = {}
        if not query:
            return
        for pair in query.split("&"):
            if pair:
                name, equals, value = pair.partition("=")
                self._values.setdefault(decode(name), decode(value) if equals else None)

    def __contains__(self, name: bytes) -> bool:
        return name in self._values

    def get(self, name: bytes) -> bytes | None:
        """Return the value of a parameter, or None if it is absent.

        Raises:
            LmqError: ``bad_request`` if the parameter is present without ``=``.
        """
        value = self._values.get(name)
        if value is None and name in self._values:
            raise LmqError("bad_request", f"the query parameter {name.decode(errors='replace')!r} has no value")
        return value


def pattern_of(query: Query) -> bytes:
    """Return the regular expression in ``qre``, not yet compiled.

    Raises:
        LmqError: ``bad_request`` if it is missing, ``bad_pattern`` if it is too long.
    """
    text = query.get(b"qre")
    if text is None:
        raise LmqError("bad_request", "the query parameter qre must hold a regular expression for queue names")
    if len(text) > PATTERN_BYTES_MAX:
        raise LmqError("bad_pattern", f"a regular expression has at most {PATTERN_BYTES_MAX} bytes")
    return text
