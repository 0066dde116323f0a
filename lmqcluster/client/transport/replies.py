"""What nodes answer: error texts to `LmqError`, results to Python values."""

from __future__ import annotations

from typing import Any

from lmqcluster.wire.errors import ERRORS, LmqError

__all__ = ["RETRY_ELSEWHERE", "decode_strings", "name_text", "parse_error", "push_text"]

_CODE_BY_TEXT = {spec.rpc: code for code, spec in ERRORS.items() if spec.rpc is not None}
_PUSH_TEXTS = {text.encode(): text for text in ("ok", "packing started", "packed")}

push_text = _PUSH_TEXTS.__getitem__
"""The result of a push as `str`; KeyError if it is none of LMQ's three."""

RETRY_ELSEWHERE = frozenset({"overloaded", "no_leader", "shutting_down", "left_cluster", "unreachable"})
"""Refusals that another node, or the same one a little later, may not repeat."""


def name_text(name: bytes) -> str:
    """A name from the wire as `str`; what is not UTF-8 is escaped so that `name_bytes` gives the same bytes again."""
    return name.decode("utf-8", "surrogateescape")


def parse_error(element: Any) -> LmqError:
    """The error that a response's error element stands for. Never raises: unknown texts are a bug of the server."""
    if not isinstance(element, bytes):
        return LmqError("internal", f"the node answered with an error that is not a text: {element!r}")
    text = element.decode(errors="replace")
    code = _CODE_BY_TEXT.get(text)
    if code is not None:
        return LmqError(code, f"{ERRORS[code].title} ({text})")
    code, colon, message = text.partition(": ")
    if colon and code in ERRORS:
        return LmqError(code, message)
    return LmqError("internal", f"the node answered with an unknown error: {text}")


def decode_strings(value: Any) -> Any:
    """The value with every string in it as `str` where it is UTF-8; others stay bytes."""
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return value
    if isinstance(value, list):
        return [decode_strings(item) for item in value]
    if isinstance(value, dict):
        return {decode_strings(key): decode_strings(item) for key, item in value.items()}
    return value
