"""Answers that hold a long list or long contents: encoded in slices, so that other clients get their turn in between."""

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
    """What an answer is encoded in."""

    @property
    def is_msgpack(self) -> bool:
        """Whether that is MessagePack, and not JSON."""

    @property
    def head(self) -> bytes:
        """The header line that names it."""


class LongList(NamedTuple, Generic[T]):
    """The value ``{name: [row(item), ...], **rest}``.

    Attributes:
        name: the member that holds the list.
        items: what the list is made of.
        row: turns an item into what is shown.
        rest: the other members.
    """

    name: str
    items: Sequence[T]
    row: Callable[[T], Any]
    rest: Mapping[str, Any] = {}


async def list_pieces(media: Format, value: LongList[T], turns: FairSlices, client: bytes) -> AsyncIterator[bytes]:
    """Encode a value piece by piece, as work of this client; a short list does not wait for its turn."""
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
    """Return the answer that has the value as a whole; see `list_pieces`."""
    pieces = [piece async for piece in list_pieces(media, value, turns, client)]
    return Reply(200, media.head, pieces)


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
