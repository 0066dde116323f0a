"""Errors of pipelines, in one sentence and with the exit status that `lmqcluster.wire.errors` assigns to them."""

from __future__ import annotations

import re
from typing import Final

from pyspark.errors import AnalysisException, PySparkException

from lmqcluster.wire.errors import ERRORS

__all__ = [
    "BAD_DATA",
    "CONFIGURATION",
    "UNAVAILABLE",
    "UNKNOWN",
    "USAGE",
    "PipelineError",
    "condition",
    "explain",
    "unreadable",
]

USAGE: Final = 2
BAD_DATA: Final = 65
UNAVAILABLE: Final = 69
UNKNOWN: Final = 75
CONFIGURATION: Final = 78

_SENTENCE_CHARACTERS_MAX: Final = 800
# The code at the end of errors of the cluster, see `connecting`.
_CODE: Final = re.compile(r"\[([a-z_]+)\]")
_OUT_OF_MEMORY: Final = "java.lang.OutOfMemoryError"
# Spark passes errors of the data source on as text: the last lines of Python's tracebacks, within longer texts.
_OURS: Final = re.compile(
    r"\b(OptionError|SchemaError|DataLossError|TakenOverError|ExclusiveQueueError|LeftBehindError|LmqError): ([^\n]+)"
)
_PYTHON: Final = re.compile(r"^([\w.]*(?:Error|Exception): [^\n]+)", re.MULTILINE)
_EXIT_CODES: Final = {
    "OptionError": USAGE,
    "SchemaError": BAD_DATA,
    "DataLossError": BAD_DATA,
    "TakenOverError": BAD_DATA,
    "ExclusiveQueueError": BAD_DATA,
    "LeftBehindError": UNKNOWN,
    "LmqError": UNAVAILABLE,
}
_CONDITION: Final = re.compile(r"\[([A-Z][A-Z0-9_]+)(?:\.[A-Z0-9_]+)*\] ([^\n]+)")
# The condition of errors that pipelines raise within queries, about unusable rows.
_RAISED: Final = "USER_RAISED_EXCEPTION"
_FILES: Final = frozenset({"FAILED_READ_FILE", "CANNOT_READ_FILE_FOOTER"})
# Conditions of Spark that only wrap the actual error.
_WRAPPERS: Final = frozenset({"STREAM_FAILED", "PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR", "FAILED_EXECUTE_UDF"})


class PipelineError(Exception):
    """A pipeline cannot continue.

    Attributes:
        exit_code: the exit status of a program that ends for this reason.
    """

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def unreadable(what: str, exc: AnalysisException) -> PipelineError:
    """Return the error for input that Spark cannot read; `what` names the input."""
    missing = exc.getCondition() == "PATH_NOT_FOUND"
    found = _CONDITION.search(exc.getMessage() or "")
    reason = exc.getMessage() if found is None else found[2].partition(" SQLSTATE:")[0]
    return PipelineError(f"cannot read {what}: {_sentence(reason or '')}", USAGE if missing else BAD_DATA)


def condition(exc: Exception) -> str | None:
    """Return Spark's explanation of an error in a query or in a value; None if the error is about something else."""
    text = str(exc)
    if _OURS.search(text) is not None or _OUT_OF_MEMORY in text:
        return None
    found = next((match for match in _CONDITION.finditer(text) if match[1] not in _WRAPPERS), None)
    return None if found is None else _sentence(found[2].partition(" SQLSTATE:")[0])


def explain(exc: Exception) -> PipelineError | None:
    """Return an error of Spark as one sentence; ``None`` if `exc` is not from Spark."""
    if isinstance(exc, ConnectionError) or type(exc).__name__ == "Py4JNetworkError":
        return PipelineError(
            "Spark's Java process has ended, in most cases because it ran out of memory: increase --memory, or use smaller"
            " micro-batches; run the same command again to continue",
            UNKNOWN,
        )
    if not isinstance(exc, PySparkException) and not type(exc).__module__.startswith("py4j"):
        return None
    text = str(exc)
    ours = _OURS.search(text)
    if ours is not None:
        return PipelineError(_sentence(ours[2]), _exit_code(ours[1], ours[2]))
    if _OUT_OF_MEMORY in text:
        return PipelineError(
            "Spark ran out of memory: increase --memory, or use smaller micro-batches; run the same command"
            " again to continue",
            UNKNOWN,
        )
    found = [match for match in _CONDITION.finditer(text) if match[1] not in _WRAPPERS]
    raised_by_us = next((match for match in found if match[1] == _RAISED), None)
    if raised_by_us is not None:
        return PipelineError(_sentence(raised_by_us[2].partition(" SQLSTATE:")[0]), BAD_DATA)
    about_files = next((match for match in found if match[1] in _FILES), None)
    if about_files is not None:
        return PipelineError(_sentence(about_files[2].partition(" SQLSTATE:")[0]), BAD_DATA)
    if "Traceback (most recent call last)" in text and (raised := _PYTHON.findall(text)):
        return PipelineError(f"a task failed: {_sentence(raised[-1])}", UNKNOWN)
    if found:
        return PipelineError(_sentence(found[0][2].partition(" SQLSTATE:")[0]), UNKNOWN)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return PipelineError(f"Spark failed: {_sentence(lines[0] if lines else type(exc).__name__)}", UNKNOWN)


def _exit_code(kind: str, text: str) -> int:
    codes = [code for code in _CODE.findall(text) if code in ERRORS]
    return ERRORS[codes[-1]].exit_code if kind == "LmqError" and codes else _EXIT_CODES[kind]


def _sentence(text: str) -> str:
    whole = " ".join(text.split())
    return whole if len(whole) <= _SENTENCE_CHARACTERS_MAX else f"{whole[:_SENTENCE_CHARACTERS_MAX]}..."
