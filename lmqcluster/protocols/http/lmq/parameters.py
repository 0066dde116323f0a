"""Query parameters of LMQ's message routes: ``t``, ``cf`` and ``reply``; and ``sequence``, which LMQ does not have."""

from __future__ import annotations

import math
import re
from typing import Literal

from ....wire.errors import LmqError
from ..server.requests.target import Query

__all__ = ["REPLIES", "CompoundFormat", "compound_format", "parse_wait", "reply_kind", "tells_sequence", "wait"]

CompoundFormat = Literal["multipart", "msgpack"]

# LMQ appends ".0" and reads the longest leading decimal fraction. So ``10`` and ``10.5x`` are valid, ``10x`` is not.
_WAIT = re.compile(rb"([+-]?[0-9]+\.[0-9]+(?:[eE][+-]?[0-9]+)?)|([+-]?[0-9]+)\Z")
_WAIT_S_MIN = 0.001
"""Shortest wait in seconds. A shorter one could end with the answer "empty" while a message is being leased."""
_WAIT_S_MAX = 1e9

REPLIES: dict[bytes, str] = {b"ack": "ack", b"nack": "nack", b"ext": "extend"}
"""Service operation for each value of ``reply``."""


def parse_wait(text: bytes) -> float:
    """Return the seconds to wait from the text of ``t``.

    ``10`` and ``0.3`` are plain numbers, ``12.34abc`` is 12.34. Values below a millisecond become 0, more than 30
    years become 30 years.

    Raises:
        LmqError: ``bad_request`` for anything else, and for negative values.
    """
    match = _WAIT.match(text)
    seconds = float(match[1] or match[2]) if match else math.nan
    # -0 counts as zero. The comparison is false for not-a-number.
    if not 0 <= seconds < math.inf:
        shown = text[:40].decode(errors="replace")
        raise LmqError("bad_request", f"t must be a number of seconds, 0 or more, such as 10 or 0.5, not {shown!r}")
    return 0.0 if seconds < _WAIT_S_MIN else min(seconds, _WAIT_S_MAX)


def wait(query: Query) -> float | None:
    """Return the wait in ``t``; None, a wait without limit, if it is absent."""
    text = query.get(b"t")
    return None if text is None else parse_wait(text)


def compound_format(query: Query) -> CompoundFormat:
    """Return the layout of compound messages that ``cf`` selects.

    Raises:
        LmqError: ``bad_request`` for a value that is neither ``multipart`` nor ``msgpack``.
    """
    text = query.get(b"cf")
    if text is None or text == b"multipart":
        return "multipart"
    if text == b"msgpack":
        return "msgpack"
    raise LmqError("bad_request", f"cf must be multipart or msgpack, not {text[:40].decode(errors='replace')!r}")


def tells_sequence(query: Query) -> bool:
    """Return whether the answer to a push includes the sequence of its message.

    Raises:
        LmqError: ``bad_request`` for a value that is neither ``true`` nor ``false``.
    """
    text = query.get(b"sequence")
    if text is None or text == b"false":
        return False
    if text == b"true":
        return True
    raise LmqError("bad_request", f"sequence must be true or false, not {text[:40].decode(errors='replace')!r}")


def reply_kind(query: Query) -> str:
    """Return the service operation that ``reply`` selects.

    Raises:
        LmqError: ``bad_request`` if it is missing or something else.
    """
    text = query.get(b"reply")
    kind = REPLIES.get(text or b"")
    if kind is None:
        raise LmqError("bad_request", "the query parameter reply must be ack, nack or ext")
    return kind
