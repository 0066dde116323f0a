"""From items to bytes and back."""

from __future__ import annotations

import json
from typing import Any, Protocol, TypeVar

import msgpack

__all__ = ["BytesSerializer", "JsonSerializer", "MsgpackSerializer", "Serializer", "TextSerializer"]

T = TypeVar("T")


class Serializer(Protocol[T]):
    """Whatever turns items into bytes. An exception of `deserialize` means that the item cannot be read."""

    def serialize(self, item: T) -> bytes:
        """The bytes of an item."""

    def deserialize(self, data: bytes) -> T:
        """The item of the bytes."""


class BytesSerializer:
    """Items are bytes."""

    def serialize(self, item: bytes) -> bytes:
        """The bytes as they are."""
        return bytes(item)

    def deserialize(self, data: bytes) -> bytes:
        """The bytes as they are."""
        return data


class TextSerializer:
    """Items are strings."""

    def __init__(self, encoding: str = "utf-8") -> None:
        self._encoding = encoding

    def serialize(self, item: str) -> bytes:
        """The encoded string."""
        return item.encode(self._encoding)

    def deserialize(self, data: bytes) -> str:
        """The decoded string."""
        return data.decode(self._encoding)


class JsonSerializer:
    """Items are what JSON can say."""

    def serialize(self, item: Any) -> bytes:
        """JSON in UTF-8."""
        return json.dumps(item, ensure_ascii=False, separators=(",", ":")).encode()

    def deserialize(self, data: bytes) -> Any:
        """The value of the JSON."""
        return json.loads(data)


class MsgpackSerializer:
    """Items are what MessagePack can say; strings and bytes differ."""

    def serialize(self, item: Any) -> bytes:
        """MessagePack."""
        packed: bytes = msgpack.packb(item, use_bin_type=True)
        return packed

    def deserialize(self, data: bytes) -> Any:
        """The value of the MessagePack."""
        return msgpack.unpackb(data, raw=False)
