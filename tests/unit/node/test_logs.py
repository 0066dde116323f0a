"""The log: JSON for machines, lines for people; records of the standard library take the same path."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from lmqcluster.node.process.logs import configure_logging


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


def test_json_lines() -> None:
    out = io.StringIO()
    configure_logging("info", "auto", stream=out)
    structlog.get_logger().info("leader elected", term=3)
    structlog.get_logger().debug("not this one")
    logging.getLogger("some.library").warning("odd %s", "thing")
    first, second = map(json.loads, out.getvalue().splitlines())
    assert (first["event"], first["level"], first["term"]) == ("leader elected", "info", 3)
    assert first["timestamp"].endswith("Z")
    assert (second["event"], second["level"]) == ("odd thing", "warning")


def test_human_lines() -> None:
    out = io.StringIO()
    configure_logging("debug", "human", stream=out)
    structlog.get_logger().debug("leader elected", term=3)
    assert "leader elected" in out.getvalue()
    assert "term=3" in out.getvalue()
    assert "\x1b" not in out.getvalue()


@pytest.mark.parametrize("form", ["human", "json"])
def test_logs_contain_no_terminal_control_characters(form: str) -> None:
    """Names of queues, paths and reasons come from clients."""
    out = io.StringIO()
    configure_logging("info", form, stream=out)
    evil = "\x1b[2J\x1b]0;owned\x07 \x9b1m \u202e \r"
    log = structlog.get_logger()
    log.info("request", path=evil, names=[evil], raw=evil.encode())
    log.info(evil)
    logging.getLogger("some.library").warning("odd %s", evil)
    log.error("bad", exc_info=ValueError(evil))
    text = out.getvalue()
    assert "owned" in text
    assert all(character.isprintable() for character in text if character != "\n")


@pytest.mark.parametrize("form", ["human", "json"])
def test_exceptions_are_logged_without_the_values_of_variables(form: str) -> None:
    out = io.StringIO()
    configure_logging("info", form, stream=out)
    secret = "the secret content"
    try:
        len(secret) / 0
    except ZeroDivisionError:
        structlog.get_logger().exception("bad")
    assert "ZeroDivisionError" in out.getvalue()
    assert "secret content" not in out.getvalue()
