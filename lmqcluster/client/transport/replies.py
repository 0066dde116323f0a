"""Decoding of replies: error texts to `LmqError`, results to Python values."""

from __future__ import annotations

from typing import Any

from lmqcluster.wire.errors import ERRORS, LmqError

__all__ = [
    "RETRY_ELSEWHERE",
    "decode_strings",
    "default_rules",
    "mapping",
    "mappings",
    "name_text",
    "name_texts",
    "nothing",
    "ok",
    "optional_int",
    "optional_mapping",
    "parse_error",
    "push_text",
]

_CODE_BY_TEXT = {spec.rpc: code for code, spec in ERRORS.items() if spec.rpc is not None}
_PUSH_TEXTS = {text.encode(): text for text in ("ok", "packing started", "packed")}

push_text = _PUSH_TEXTS.__getitem__
"""Decoder of the result of a push to `str`; raises KeyError if it is none of LMQ's three."""

RETRY_ELSEWHERE = frozenset({"overloaded", "no_leader", "shutting_down", "left_cluster", "unreachable"})
"""Codes of errors after which a retry at another node, or later at the same one, may succeed."""


def name_text(name: bytes) -> str:
    """Decode a name from the wire. Bytes that are not UTF-8 become surrogate escapes, which `name_bytes` reverses."""
    return name.decode("utf-8", "surrogateescape")


def parse_error(element: Any) -> LmqError:
    """Return the error for the error element of a response. Never raises: an unknown text is a bug of the server."""
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
    """Return the value with every string in it that is UTF-8 as `str`; others stay bytes."""
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


def ok(result: Any) -> str:
    """Decode the answer "ok"."""
    if result != b"ok":
        raise ValueError("expected ok")
    return "ok"


def nothing(_result: Any) -> None:
    """Ignore an answer that says nothing."""


def optional_int(result: Any) -> int | None:
    """Decode a number or nil."""
    return None if result is None else int(result)


def name_texts(names: list[bytes]) -> list[str]:
    """Decode a list of names."""
    return [name_text(name) for name in names]


def mapping(result: Any) -> dict[str, Any]:
    """Decode a map."""
    return {str(key): value for key, value in decode_strings(result).items()}


def optional_mapping(result: Any) -> dict[str, Any] | None:
    """Decode a map or nil."""
    return None if result is None else mapping(result)


def mappings(results: Any) -> list[dict[str, Any]]:
    """Decode a list of maps."""
    return [mapping(result) for result in results]


def default_rules(result: Any) -> list[tuple[str, dict[str, Any]]]:
    """Decode the list of default properties: patterns with properties."""
    return [(pattern, props) for pattern, props in decode_strings(result)]
