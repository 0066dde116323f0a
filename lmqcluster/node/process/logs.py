"""Logging of a node: key-value events on standard error, one line per state change and none per message."""

from __future__ import annotations

import io
import logging
import os
import sys
from typing import TextIO

import structlog

from .standard_output import StandardOutput

__all__ = ["configure_logging", "log_level", "set_log_level"]

_CHATTY = ("aiohttp.access", "asyncio")


def configure_logging(level: str = "info", log_format: str = "auto", *, stream: TextIO | None = None) -> None:
    """Set up structlog, and the standard library's logging through it, for this process.

    Args:
        level: lowest severity to write: ``debug``, ``info``, ``warning`` or ``error``.
        log_format: ``human``, ``json``, or ``auto``: human on a terminal, JSON otherwise.
        stream: target of the lines, by default standard error. ``NO_COLOR`` in the environment disables colours.
    """
    target = sys.stderr if stream is None else stream
    human = log_format == "human" or (log_format == "auto" and target.isatty())
    timestamp = structlog.processors.TimeStamper(fmt="%H:%M:%S.%f" if human else "iso", utc=not human)
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        timestamp,
    ]
    renderer: list[structlog.typing.Processor]
    if human:
        colors = target.isatty() and not os.environ.get("NO_COLOR")
        renderer = [
            _escape_values,
            structlog.dev.ConsoleRenderer(colors=colors, pad_event_to=32, exception_formatter=_plain_traceback),
        ]
    else:
        # Local variables may contain messages and secrets, so the log omits them.
        exceptions = structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
        renderer = [structlog.processors.ExceptionRenderer(exceptions), structlog.processors.JSONRenderer()]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,
    )
    handler = _Handler(target)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *renderer],
        )
    )
    logging.getLogger().handlers[:] = [handler]
    logging.captureWarnings(capture=True)
    if isinstance(target, StandardOutput):
        target.notice = handler.dropped
    set_log_level(level)


class _Handler(logging.StreamHandler[TextIO]):
    """Writes the log, and drops lines if the reader is too slow."""

    def emit(self, record: logging.LogRecord) -> None:
        if isinstance(self.stream, StandardOutput) and self.stream.is_full:
            # Formatting a line costs more than the rest of a small request.
            self.stream.drop()
        else:
            super().emit(record)

    def dropped(self, count: int) -> str:
        """Return the line that reports the number of dropped lines."""
        text = f"log lines dropped, because they were not read in time: {count}"
        return self.format(logging.LogRecord("lmq.log", logging.WARNING, "", 0, text, None, None))


def log_level() -> str:
    """Return the lowest severity that is written now."""
    return logging.getLevelName(logging.getLogger().level).lower()


def set_log_level(level: str) -> None:
    """Set the lowest severity to write: ``debug``, ``info``, ``warning`` or ``error``."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(level))
    root = logging.getLogger()
    root.setLevel(level.upper())
    for name in _CHATTY:
        logging.getLogger(name).setLevel(max(logging.WARNING, root.level))


def _escaped(text: str) -> str:
    """Replace unprintable characters, which could control a terminal, with Python's escapes."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "backslashreplace").decode() for c in text)


def _escape_values(_logger: object, _method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """Escape all texts, which may contain external input; other values are shown by `repr`, which escapes."""
    return {name: _escaped(value) if isinstance(value, str) else value for name, value in event.items()}


def _plain_traceback(stream: TextIO, exc_info: structlog.typing.ExcInfo) -> None:
    """Write a traceback with each line escaped, because its last line quotes the exception."""
    text = io.StringIO()
    structlog.dev.plain_traceback(text, exc_info)
    stream.write("\n".join(map(_escaped, text.getvalue().split("\n"))))
