"""Regular expressions over queue names (RE2): linear time, bytes against bytes, the same result on every node."""

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
"""The google-re2 release of this machine version: all members match default rules with the same engine."""
PROGRAM_BYTES_MAX = 128 * 1024
"""Most memory, per direction, that RE2 may use for a client's expression, states found during searches included."""
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
    """Refuse to run with an engine that differs from the other members' engine.

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
    """Compile a pattern of the replicated state, which every node must accept, to an unanchored search.

    Raises:
        ValueError: RE2 refuses the pattern; the text says why.
    """
    return _search(_compiled(pattern, _OPTIONS))


def client_pattern(pattern: bytes) -> Match:
    """Compile a pattern of a client to an unanchored search within bounds of memory and time.

    Raises:
        LmqError: ``bad_pattern`` with the reason.
    """
    return _search(_client_program(pattern))


def check_pattern(pattern: bytes) -> int:
    """Refuse an unusable pattern; return how many instructions it compiles to.

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
