"""Answers with a long list or long contents, encoded in slices, so that other clients get their turn."""

from __future__ import annotations

import json
import secrets
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import msgpack

from .....node.process.fair_slices import BLOCK, FairSlices
from .long_content import LongContent, json_pieces
from .reply import Reply

__all__ = ["LongList", "list_pieces", "reply_with_list"]

T = TypeVar("T")


class Format(Protocol):
    """Encoding of an answer."""

    @property
    def is_msgpack(self) -> bool:
        """Return whether the encoding is MessagePack instead of JSON."""

    @property
    def head(self) -> bytes:
        """Return the header line with the content type."""


class LongList(NamedTuple, Generic[T]):
    """The value ``{name: [row(item), ...], **rest}``.

    Attributes:
        name: the member that holds the list.
        items: the items of the list.
        row: converts an item to its row in the answer.
        rest: the other members.
    """

    name: str
    items: Sequence[T]
    row: Callable[[T], Any]
    rest: Mapping[str, Any] = {}


async def list_pieces(media: Format, value: LongList[T], turns: FairSlices, client: bytes) -> AsyncIterator[bytes]:
    """Encode a value piece by piece, as work of this client. A short list does not wait for a turn."""
    name, items, row, rest = value
    pack = msgpack.Packer().pack
    packer = msgpack.Packer()
    yield (
        packer.pack_map_header(1 + len(rest)) + packer.pack(name) + packer.pack_array_header(len(items))
        if media.is_msgpack
        else b"{" + _dumped(name) + b":["
    )
    comma = b""
    async for block in turns.blocks(items, client) if len(items) > BLOCK else _at_once(items):
        rows = [row(item) for item in block]
        if media.is_msgpack:
            yield b"".join(map(pack, rows))
        else:
            yield comma
            for piece in await _json_items(rows):
                yield piece
            comma = b","
    if media.is_msgpack:
        yield b"".join(pack(part) for member in rest.items() for part in member)
    else:
        yield b"".join((b"]", *(b"," + _dumped(key) + b":" + _dumped(part) for key, part in rest.items()), b"}"))


async def _at_once(items: Sequence[T]) -> AsyncIterator[Sequence[T]]:
    if items:
        yield items


async def reply_with_list(media: Format, value: LongList[T], turns: FairSlices, client: bytes) -> Reply:
    """Return an answer with the whole value; see `list_pieces`."""
    pieces = [piece async for piece in list_pieces(media, value, turns, client)]
    return Reply(200, media.head, pieces)


async def _json_items(rows: list[Any]) -> list[bytes]:
    """Return the rows in JSON. A random word first stands for each long content, so that no client can forge it."""
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
