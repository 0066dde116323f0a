"""Output in encodings without all characters, such as ASCII: the missing ones are written as escapes."""

from __future__ import annotations

import codecs
import io
import sys
from typing import Final

__all__ = ["escape_unencodable_characters"]

_HANDLER: Final = "lmqcluster.escape"


def _escape(error: UnicodeError) -> tuple[str, int]:
    """Return JSON escapes for characters that cannot be encoded, and the position to continue at.

    JSON remains JSON. Tables escape the backslash itself, so they remain unambiguous.
    """
    if not isinstance(error, UnicodeEncodeError):
        raise error
    units = error.object[error.start : error.end].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2)), error.end


def escape_unencodable_characters() -> None:
    """Make standard output and error escape characters that they cannot encode."""
    codecs.register_error(_HANDLER, _escape)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=_HANDLER)
