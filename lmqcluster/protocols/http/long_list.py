"""Answers that hold a long list: encoded in slices, so that the other clients of the node get their turn in between."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

import msgpack

from .media import MSGPACK_HEAD, Media
from .reply import JSON, Reply

__all__ = ["reply_with_list"]

T = TypeVar("T")
_SLICE: Final = 500


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
    encode = _packed if media.is_msgpack else _json_items
    pieces: list[bytes] = []
    for start in range(0, len(items), _SLICE):
        if start:
            await asyncio.sleep(0)
        pieces.append(encode([row(item) for item in items[start : start + _SLICE]]))
    if media.is_msgpack:
        packer = msgpack.Packer()
        head = packer.pack_map_header(1 + len(rest)) + packer.pack(name) + packer.pack_array_header(len(items))
        tail = b"".join(packer.pack(part) for member in rest.items() for part in member)
        return Reply(200, MSGPACK_HEAD, [head, *pieces, tail])
    tail = b"".join(b"," + _dumped(key) + b":" + _dumped(value) for key, value in rest.items())
    return Reply(200, JSON, [b"{" + _dumped(name) + b":[", b",".join(pieces), b"]", tail, b"}"])


def _packed(rows: list[Any]) -> bytes:
    pack = msgpack.Packer().pack
    return b"".join([pack(row) for row in rows])


def _json_items(rows: list[Any]) -> bytes:
    return _dumped(rows)[1:-1]


def _dumped(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
