"""The JSON form: the action in a header, one object as the body, errors by their shapes."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from ...ports import VALUE_BYTES
from ..http.server.replies.reply import Reply
from ..http.server.requests.json_body import decode_json
from ..http.server.requests.values import VALUES_MAX, WINDOW_BYTES, check_json
from .codec import Codec, head_of, refusal_of
from .errors import SERIALIZATION, UNKNOWN_OPERATION, SqsError
from .rendering import Output, json_bytes
from .shapes import SHAPES, Kind, Member, Parameters, RawAttribute

if TYPE_CHECKING:
    from ..http.server.requests.request import Request

__all__ = ["CONTENT_TYPE", "JSON_TYPE", "TARGET", "TARGET_PREFIX", "JsonCodec", "json_refusal"]

JSON_TYPE: Final = "application/x-amz-json-1.0"
TARGET: Final = "X-Amz-Target"
TARGET_PREFIX: Final = "AmazonSQS."
CONTENT_TYPE: Final = JSON_TYPE.encode("ascii")
_SHAPE_PREFIX: Final = "com.amazonaws.sqs#"
_DIGITS_MAX: Final = 18


class JsonCodec(Codec):
    """One request in JSON.

    Args:
        request: the request.
        body: its whole body.
        action: its action, which is known if it repeats another request; empty if the header has to be read.
    """

    def __init__(self, request: Request, body: bytes, action: str = "") -> None:
        self._request = request
        self._body = body
        self._action = action

    def action(self) -> str:
        """Return the action that the header names."""
        if not self._action:
            action = self._request.headers.get(TARGET, "").removeprefix(TARGET_PREFIX)
            if action not in SHAPES:
                raise SqsError(UNKNOWN_OPERATION, f"The action {action[:100]!r} is not known.")
            self._action = action
        return self._action

    async def parameters(self) -> Parameters:
        """Return the members of the object, checked for their types. Raises like `decode_json` too."""
        body = self._body
        if len(body) > WINDOW_BYTES:
            await check_json(body)
            self._request.hold(3 * len(body) + VALUE_BYTES * min(VALUES_MAX, len(body)))
        return _read_object(SHAPES[self.action()], _object("the body", await decode_json(body) if body else {}))

    async def answer(self, output: Output | None, request_id: str) -> Reply:
        """Return the answer: an object, or an empty body for an action without an output."""
        content = b"" if output is None else await json_bytes(output)
        return Reply(200, head_of(CONTENT_TYPE, request_id), content)

    def refusal(self, error: SqsError, request_id: str) -> Reply:
        """Return the answer for an error."""
        return json_refusal(error, request_id)


def json_refusal(error: SqsError, request_id: str) -> Reply:
    """Return an error in JSON."""
    kind = error.kind
    head = head_of(CONTENT_TYPE, request_id, {"x-amzn-query-error": f"{kind.code};{kind.fault}"})
    content = {"__type": _SHAPE_PREFIX + kind.shape, "message": error.message}
    return refusal_of(error, head, json.dumps(content).encode())


def _wrong(name: str, kind: str) -> SqsError:
    return SqsError(SERIALIZATION, f"{name} must be {kind}")


def _read_object(members: tuple[Member, ...], given: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for member in members:
        value = given.get(member.name)
        if value is not None:
            found[member.name] = _READERS[member.kind](member, value)
    return found


def _text(member: Member, value: Any) -> str:
    if type(value) is str:
        return value
    # The decoder returns a very long string as UTF-8.
    if type(value) is bytes:
        return value.decode()
    raise _wrong(member.name, "a string")


def _number(member: Member, value: Any) -> int:
    if type(value) is int:
        return value
    # Some older bridges send numbers as strings.
    if type(value) is str and len(value) <= _DIGITS_MAX and value.isascii() and value.removeprefix("-").isdecimal():
        return int(value)
    raise _wrong(member.name, "an integer")


def _texts(member: Member, value: Any) -> list[str]:
    if not isinstance(value, list):
        raise _wrong(member.name, "a list of strings")
    return [_text(member, one) for one in value if one is not None]


def _object(name: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _wrong(name, "an object")
    return value


def _map(member: Member, value: Any) -> dict[str, str]:
    return {name: _text(member, one) for name, one in _object(member.name, value).items() if one is not None}


def _attributes(member: Member, value: Any) -> dict[str, RawAttribute]:
    return {name: _attribute(member, one) for name, one in _object(member.name, value).items() if one is not None}


def _attribute(member: Member, value: Any) -> RawAttribute:
    given = _object(member.name, value)
    data_type, text, data = given.get("DataType"), given.get("StringValue"), given.get("BinaryValue")
    return RawAttribute(
        None if data_type is None else _text(member, data_type),
        None if text is None else _text(member, text),
        None if data is None else _binary(member, data),
        bool(given.get("StringListValues") or given.get("BinaryListValues")),
    )


def _binary(member: Member, value: Any) -> bytes:
    try:
        return base64.b64decode(_text(member, value), validate=True)
    except (binascii.Error, ValueError) as exc:
        raise _wrong(member.name, "Base64 where it is binary") from exc


def _entries(member: Member, value: Any) -> list[dict[str, Any]]:
    if not isinstance(value, list):
        raise _wrong(member.name, "a list of objects")
    return [_read_object(member.members, _object(member.name, one)) for one in value]


_READERS: Final[Mapping[Kind, Callable[[Member, Any], Any]]] = {
    Kind.TEXT: _text,
    Kind.NUMBER: _number,
    Kind.TEXTS: _texts,
    Kind.MAP: _map,
    Kind.ATTRIBUTES: _attributes,
    Kind.ENTRIES: _entries,
}
