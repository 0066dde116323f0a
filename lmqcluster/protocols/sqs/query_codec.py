"""The older form: parameters in a query or a form, answers in XML, errors by their codes."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from ..http.server.replies.reply import Reply
from .codec import Codec, head_of, refusal_of
from .errors import INVALID_ACTION, QUEUE_MISSING, SqsError, invalid_value, value_error
from .form import Tree, leaf, numbered
from .rendering import LONG_CHARACTERS, Output, assembled
from .shapes import SHAPES, Kind, Member, Parameters, RawAttribute

__all__ = ["FORM_TYPE", "QueryCodec"]

FORM_TYPE: Final = "application/x-www-form-urlencoded"
_NAMESPACE: Final = "http://queue.amazonaws.com/doc/2012-11-05/"
_WITHOUT_QUEUE: Final = ("CreateQueue", "ListQueues")
"""Actions that are refused at the URL of a queue."""
_QUEUE_MEMBER: Final = "QueueUrl"
_SPECIAL: Final = re.compile("[&<>\r\0-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
_ESCAPES: Final = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "\r": "&#xD;"}
_REPLACEMENT: Final = "\ufffd"
"""Stands for a character that XML cannot carry, such as in a parameter that an error repeats."""
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,18}")
_LIST_NAMES: Final = {
    "Messages": "Message",
    "QueueUrls": "QueueUrl",
    "queueUrls": "QueueUrl",
    "Failed": "BatchResultErrorEntry",
    "Results": "ListMessageMoveTasksResultEntry",
}
_MAP_NAMES: Final = {
    "Attributes": ("Attribute", "Name"),
    "MessageAttributes": ("MessageAttribute", "Name"),
    "Tags": ("Tag", "Key"),
}


class QueryCodec(Codec):
    """One request with parameters.

    Args:
        tree: the parameters.
        path: the path of the request, which names a queue if no parameter does.
    """

    def __init__(self, tree: Tree, path: str) -> None:
        self._tree = tree
        self._path = path

    def action(self) -> str:
        """Return the action that a parameter names."""
        action = leaf(self._tree, "Action") or ""
        if action not in SHAPES or (action in _WITHOUT_QUEUE and self._path.strip("/")):
            raise SqsError(INVALID_ACTION, f"The action {action[:100]} is not valid for this endpoint.")
        return action

    async def parameters(self) -> Parameters:
        """Return the parameters of the action."""
        members = SHAPES[self.action()]
        found = _read(members, self._tree)
        if _QUEUE_MEMBER not in found and members[0].name == _QUEUE_MEMBER and self._path.strip("/"):
            found[_QUEUE_MEMBER] = self._path
        return found

    async def answer(self, output: Output | None, request_id: str) -> Reply:
        """Return the answer."""
        content = await assembled(_answer(self.action(), output, request_id))
        return Reply(200, head_of(b"text/xml", request_id), content)

    def refusal(self, error: SqsError, request_id: str) -> Reply:
        """Return the answer for an error."""
        kind = error.kind
        text = error.message
        if kind is QUEUE_MISSING:
            text = text.removesuffix(".") + " for this wsdl version."
        parts = {"Type": kind.fault, "Code": kind.code, "Message": text}
        shown = "".join(f"<{name}>{_escaped(value)}</{name}>" for name, value in parts.items())
        content = (
            f'<?xml version="1.0"?><ErrorResponse xmlns="{_NAMESPACE}"><Error>{shown}<Detail/></Error>'
            f"<RequestId>{request_id}</RequestId></ErrorResponse>"
        )
        return refusal_of(error, head_of(b"text/xml", request_id), content.encode())


# --- reading ----------------------------------------------------------------------------------------------------------


def _read(members: tuple[Member, ...], tree: Tree) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for member in members:
        value = _READERS[member.kind](member, tree)
        if value is not None:
            found[member.name] = value
    return found


def _text(member: Member, tree: Tree) -> str | None:
    return leaf(tree, member.name)


def _number(member: Member, tree: Tree) -> int | None:
    text = leaf(tree, member.name)
    if not text:
        return None
    if _INTEGER.fullmatch(text) is None:
        raise value_error(text, member.name, "Must be an integer.")
    return int(text)


def _texts(member: Member, tree: Tree) -> list[str] | None:
    return [one for one in numbered(tree, member.query_name) if isinstance(one, str)] or None


def _rows(member: Member, tree: Tree) -> list[Tree]:
    return [one for one in numbered(tree, member.query_name) if isinstance(one, dict)]


def _map(member: Member, tree: Tree) -> dict[str, str] | None:
    pairs = [(leaf(row, member.key), leaf(row, member.value) or "") for row in _rows(member, tree)]
    return {key: value for key, value in pairs if key is not None} or None


def _attributes(member: Member, tree: Tree) -> dict[str, RawAttribute] | None:
    rows = _rows(member, tree)
    return {leaf(row, "Name") or "": _attribute(member, row) for row in rows} or None


def _attribute(member: Member, row: Tree) -> RawAttribute:
    value = row.get("Value")
    given = value if isinstance(value, dict) else {}
    coded = leaf(given, "BinaryValue")
    try:
        data = None if coded is None else base64.b64decode(coded, validate=True)
    except (binascii.Error, ValueError) as exc:
        raise invalid_value(f"{member.query_name}: a binary value is not Base64.") from exc
    has_list = "StringListValue" in given or "BinaryListValue" in given
    return RawAttribute(leaf(given, "DataType"), leaf(given, "StringValue"), data, has_list)


def _entries(member: Member, tree: Tree) -> list[dict[str, Any]] | None:
    return [_read(member.members, row) for row in _rows(member, tree)] or None


_READERS: Final[Mapping[Kind, Callable[[Member, Tree], Any]]] = {
    Kind.TEXT: _text,
    Kind.NUMBER: _number,
    Kind.TEXTS: _texts,
    Kind.MAP: _map,
    Kind.ATTRIBUTES: _attributes,
    Kind.ENTRIES: _entries,
}


# --- writing ----------------------------------------------------------------------------------------------------------


def _answer(action: str, output: Output | None, request_id: str) -> Iterator[str]:
    yield f'<?xml version="1.0"?><{action}Response xmlns="{_NAMESPACE}">'
    if output:
        yield f"<{action}Result>"
        for name, value in output.items():
            yield from _member(action, name, value)
        yield f"</{action}Result>"
    elif output is not None:
        yield f"<{action}Result/>"
    yield f"<ResponseMetadata><RequestId>{request_id}</RequestId></ResponseMetadata></{action}Response>"


def _member(action: str, name: str, value: Any) -> Iterator[str]:
    if name in _MAP_NAMES:
        element, key = _MAP_NAMES[name]
        for part, one in value.items():
            yield f"<{element}><{key}>{_escaped(part)}</{key}>"
            yield from _member(action, "Value", one)
            yield f"</{element}>"
    elif isinstance(value, list):
        element = _LIST_NAMES.get(name) or f"{action}ResultEntry"
        for one in value:
            yield from _member(action, element, one)
    elif isinstance(value, dict):
        yield f"<{name}>"
        for part, one in value.items():
            yield from _member(action, part, one)
        yield f"</{name}>"
    else:
        yield f"<{name}>"
        yield from _texts_of(value)
        yield f"</{name}>"


def _texts_of(value: Any) -> Iterator[str]:
    if not isinstance(value, str):
        yield str(value).lower() if isinstance(value, bool) else str(value)
        return
    for start in range(0, len(value), LONG_CHARACTERS):
        yield _escaped(value[start : start + LONG_CHARACTERS])


def _escaped(text: str) -> str:
    # An XML parser would make a line feed of a carriage return.
    return _SPECIAL.sub(lambda found: _ESCAPES.get(found[0], _REPLACEMENT), text) if _SPECIAL.search(text) else text
