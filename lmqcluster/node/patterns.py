"""Regular expressions over queue names: linear time and alike on every node (RE2), bytes against bytes."""

from __future__ import annotations

from functools import lru_cache

import re2

from ..core.commands import Match
from ..wire.errors import LmqError
from ..wire.limits import PATTERN_BYTES_MAX

__all__ = ["check_pattern", "compile_pattern"]


def _options() -> re2.Options:
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    options.log_errors = False
    options.never_capture = True
    return options


_OPTIONS = _options()


@lru_cache(maxsize=1024)
def compile_pattern(pattern: bytes) -> Match:
    """Compile to an unanchored search.

    Raises:
        ValueError: RE2 cannot take the pattern; the text says why.
    """
    if len(pattern) > PATTERN_BYTES_MAX:
        raise ValueError(f"a regular expression may have at most {PATTERN_BYTES_MAX} bytes, this has {len(pattern)}")
    try:
        search = re2.compile(pattern, _OPTIONS).search
    except re2.error as exc:
        reason = exc.args[0] if exc.args else "refused"
        raise ValueError(reason.decode("latin-1") if isinstance(reason, bytes) else str(reason)) from exc
    return lambda name: search(name) is not None


def check_pattern(pattern: bytes) -> None:
    """Refuse a pattern that cannot be used.

    Raises:
        LmqError: ``bad_pattern`` with the reason.
    """
    try:
        compile_pattern(pattern)
    except ValueError as exc:
        shown = pattern[:80].decode("utf-8", "backslashreplace")
        raise LmqError("bad_pattern", f"the regular expression {shown!r} is refused: {exc}") from exc
