"""Parameters of a query or a form, as a tree: ``Tag.1.Key=a`` is the value ``a`` under ``Tag``, ``1`` and ``Key``."""

from __future__ import annotations

import asyncio
from typing import Final
from urllib.parse import unquote_to_bytes

from ..http.server.requests.values import VALUES_MAX
from .errors import SERIALIZATION, SqsError

__all__ = ["Tree", "leaf", "numbered", "parse_form"]

Tree = dict[str, "str | Tree"]
"""Values and smaller trees by the parts of names."""
_DEPTH_MAX: Final = 8
"""Most parts of a name; no parameter has more than six."""
_DIGITS_MAX: Final = 9
_TURN_BYTES: Final = 32 * 1024


async def parse_form(form: bytes) -> Tree:
    """Return the parameters; of a repeated one the last counts. A long form is decoded in slices.

    Raises:
        SqsError: there are too many, or they are not UTF-8.
    """
    if form.count(b"&") > VALUES_MAX:
        raise SqsError(SERIALIZATION, f"a request may have at most {VALUES_MAX} parameters")
    tree: Tree = {}
    since_turn = 0
    for pair in form.split(b"&"):
        name, _equals, value = pair.partition(b"=")
        if name:
            _set(tree, await _decoded(name), await _decoded(value))
        since_turn += len(pair)
        if since_turn > _TURN_BYTES:
            since_turn = 0
            await asyncio.sleep(0)
    return tree


async def _decoded(data: bytes) -> str:
    if b"+" in data:
        data = data.replace(b"+", b" ")
    if b"%" in data:
        data = unquote_to_bytes(data) if len(data) <= _TURN_BYTES else await _unquoted(data)
    try:
        return data.decode()
    except UnicodeDecodeError as exc:
        raise SqsError(SERIALIZATION, "a parameter is not UTF-8") from exc


async def _unquoted(data: bytes) -> bytes:
    """Decode the escapes of a long value in slices, none of which ends inside an escape."""
    pieces: list[bytes] = []
    at = 0
    while at < len(data):
        end = at + _TURN_BYTES
        mark = data.rfind(b"%", end - 2, end)
        if 0 <= mark < end < len(data):
            end = mark
        pieces.append(unquote_to_bytes(data[at:end]))
        at = end
        await asyncio.sleep(0)
    return b"".join(pieces)


def _set(tree: Tree, name: str, value: str) -> None:
    *parents, last = name.split(".", _DEPTH_MAX - 1)
    for part in parents:
        child = tree.get(part)
        if not isinstance(child, dict):
            child = tree[part] = {}
        tree = child
    if not isinstance(tree.get(last), dict):
        tree[last] = value


def leaf(tree: Tree, name: str) -> str | None:
    """Return a value, None if there is none."""
    found = tree.get(name)
    return found if isinstance(found, str) else None


def numbered(tree: Tree, name: str) -> list[str | Tree]:
    """Return the values of a list in the order of their numbers, of which some may be missing; one may have no number."""
    found = tree.get(name)
    if found is None or found == "":
        return []
    if isinstance(found, str):
        return [found]
    numbers = [part for part in found if part.isascii() and part.isdecimal() and len(part) <= _DIGITS_MAX]
    if not numbers:
        return [found]
    return [found[part] for part in sorted(numbers, key=int)]
