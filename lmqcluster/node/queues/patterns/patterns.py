"""Regular expressions over queue names: linear time and alike on every node (RE2), bytes against bytes."""

from __future__ import annotations

from importlib.metadata import version

import re2

from ....core.log.commands import Match
from ....wire.errors import LmqError
from ....wire.limits import PATTERN_BYTES_MAX

__all__ = [
    "ENGINE_VERSION",
    "PROGRAM_BYTES_MAX",
    "PROGRAM_MAX",
    "check_engine",
    "check_pattern",
    "client_pattern",
    "compile_pattern",
]

ENGINE_VERSION = "1.1.20251105"
"""The release of google-re2 that goes with the machine version: all members match default rules with the same engine."""
PROGRAM_BYTES_MAX = 128 * 1024
"""Most memory that RE2 may take for each direction of a client's expression, states found by searching included."""
PROGRAM_MAX = 5_000
"""Most instructions of a client's expression: a search takes at most that many steps for each byte of a name."""


def _options(memory_bytes: int | None = None) -> re2.Options:
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    options.log_errors = False
    options.never_capture = True
    if memory_bytes is not None:
        options.max_mem = memory_bytes
    return options


_OPTIONS = _options()
_CLIENT_OPTIONS = _options(PROGRAM_BYTES_MAX)


def check_engine() -> None:
    """Refuse to run with another engine than the other members have.

    Raises:
        ValueError: another release of google-re2 is installed.
    """
    installed = version("google-re2")
    if installed != ENGINE_VERSION:
        raise ValueError(
            f"google-re2 {installed} is installed, this release needs {ENGINE_VERSION}: all nodes must match queue names with the"
            " same engine; install that version"
        )


def compile_pattern(pattern: bytes) -> Match:
    """Compile to an unanchored search what is in the replicated state, which every node must be able to take.

    Raises:
        ValueError: RE2 cannot take the pattern; the text says why.
    """
    return _search(_compiled(pattern, _OPTIONS))


def client_pattern(pattern: bytes) -> Match:
    """Compile to an unanchored search what a client asks for, within bounds of memory and time.

    Raises:
        LmqError: ``bad_pattern`` with the reason.
    """
    return _search(_client_program(pattern))


def check_pattern(pattern: bytes) -> int:
    """Refuse a pattern that cannot be used; returns how many instructions it takes.

    Raises:
        LmqError: ``bad_pattern`` with the reason.
    """
    return int(_client_program(pattern).programsize)


def _client_program(pattern: bytes) -> re2._Regexp:
    shown = pattern[:80].decode("utf-8", "backslashreplace")
    try:
        program = _compiled(pattern, _CLIENT_OPTIONS)
    except ValueError as exc:
        raise LmqError("bad_pattern", f"the regular expression {shown!r} is refused: {exc}") from exc
    if program.programsize > PROGRAM_MAX:
        reason = f"it is too complex: RE2 makes {program.programsize} instructions of it, at most {PROGRAM_MAX} may be"
        raise LmqError("bad_pattern", f"the regular expression {shown!r} is refused: {reason}")
    return program


def _compiled(pattern: bytes, options: re2.Options) -> re2._Regexp:
    if len(pattern) > PATTERN_BYTES_MAX:
        raise ValueError(f"a regular expression may have at most {PATTERN_BYTES_MAX} bytes, this has {len(pattern)}")
    try:
        return re2.compile(pattern, options)
    except re2.error as exc:
        reason = exc.args[0] if exc.args else "refused"
        raise ValueError(reason.decode("latin-1") if isinstance(reason, bytes) else str(reason)) from exc


def _search(program: re2._Regexp) -> Match:
    search = program.search
    return lambda name: search(name) is not None
