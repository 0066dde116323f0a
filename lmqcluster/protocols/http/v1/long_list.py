"""Answers that hold a long list or long contents: encoded in slices, so that other clients get their turn in between."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

import msgpack

from ..server.reply import JSON, Reply
from .long_content import LongContent, json_pieces
from .media import MSGPACK_HEAD, Media

__all__ = ["reply_with_list"]

T = TypeVar("T")
_SLICE: Final = 100


async def reply_with_list(
    media: Media, name: str, items: Sequence[T], row: Callable[[T], Any], rest: Mapping[str, Any]
) -> Reply:
    """The answer ``{name: [row(item), ...], **rest}``.

    Args:
        media: its format.
        name: the member that holds the list.
        items: what the list is made of.
        row: turns an item into what is shown.
        rest: the other members.
    """
    pieces: list[bytes] = []
    for start in range(0, len(items), _SLICE):
        if start:
            await asyncio.sleep(0)
        rows = [row(item) for item in items[start : start + _SLICE]]
        if media.is_msgpack:
            pieces.append(_packed(rows))
        else:
            pieces += [b","] if start else []
            pieces += await _json_items(rows)
    if media.is_msgpack:
        packer = msgpack.Packer()
        head = packer.pack_map_header(1 + len(rest)) + packer.pack(name) + packer.pack_array_header(len(items))
        tail = b"".join(packer.pack(part) for member in rest.items() for part in member)
        return Reply(200, MSGPACK_HEAD, [head, *pieces, tail])
    tail = b"".join(b"," + _dumped(key) + b":" + _dumped(value) for key, value in rest.items())
    return Reply(200, JSON, [b"{" + _dumped(name) + b":[", *pieces, b"]", tail, b"}"])


def _packed(rows: list[Any]) -> bytes:
    pack = msgpack.Packer().pack
    return b"".join([pack(row) for row in rows])


async def _json_items(rows: list[Any]) -> list[bytes]:
    """The rows in JSON. For each long content there is a word at first that nobody can have put there."""
    word = secrets.token_hex(16)
    contents: list[bytes] = []

    def stand_in(value: Any) -> str:
        if not isinstance(value, LongContent):
            raise TypeError(f"a {type(value).__name__} cannot be written as JSON")
        contents.append(value.data)
        return word

    text = json.dumps(rows, separators=(",", ":"), ensure_ascii=False, default=stand_in)[1:-1].encode()
    if not contents:
        return [text]
    first, *others = text.split(b'"%b"' % word.encode())
    pieces = [first]
    for content, following in zip(contents, others, strict=True):
        pieces += await json_pieces(content)
        pieces.append(following)
    return pieces


def _dumped(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
