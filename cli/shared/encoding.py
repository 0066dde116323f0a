"""Output in an encoding that does not have all characters, such as ASCII: escapes stand for those it lacks."""

from __future__ import annotations

import codecs
import io
import sys
from typing import Final

__all__ = ["escape_what_cannot_be_encoded"]

_HANDLER: Final = "lmqcluster.escape"


def _escaped(error: UnicodeError) -> tuple[str, int]:
    """Return escapes for what cannot be encoded, as JSON has them, and the place to go on from.

    So JSON stays JSON; and tables, which escape the backslash itself, stay unambiguous.
    """
    if not isinstance(error, UnicodeEncodeError):
        raise error
    units = error.object[error.start : error.end].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2)), error.end


def escape_what_cannot_be_encoded() -> None:
    """Make standard output and error write escapes where they would fail."""
    codecs.register_error(_HANDLER, _escaped)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=_HANDLER)
