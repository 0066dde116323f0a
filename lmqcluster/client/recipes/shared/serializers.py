"""Conversion of items to bytes and back."""

from __future__ import annotations

import json
from typing import Any, Protocol, TypeVar

import msgpack

__all__ = ["BytesSerializer", "JsonSerializer", "MsgpackSerializer", "Serializer", "TextSerializer"]

T = TypeVar("T")


class Serializer(Protocol[T]):
    """Interface of serializers. An exception from `deserialize` means that the item is unreadable."""

    def serialize(self, item: T) -> bytes:
        """Return the bytes of an item."""

    def deserialize(self, data: bytes) -> T:
        """Return the item of the bytes."""


class BytesSerializer:
    """Serializer for items that are bytes."""

    def serialize(self, item: bytes) -> bytes:
        """Return the bytes unchanged."""
        return bytes(item)

    def deserialize(self, data: bytes) -> bytes:
        """Return the bytes unchanged."""
        return data


class TextSerializer:
    """Serializer for items that are strings."""

    def __init__(self, encoding: str = "utf-8") -> None:
        self._encoding = encoding

    def serialize(self, item: str) -> bytes:
        """Return the encoded string."""
        return item.encode(self._encoding)

    def deserialize(self, data: bytes) -> str:
        """Return the decoded string."""
        return data.decode(self._encoding)


class JsonSerializer:
    """Serializer for items that JSON can represent."""

    def serialize(self, item: Any) -> bytes:
        """Return the item as JSON in UTF-8."""
        return json.dumps(item, ensure_ascii=False, separators=(",", ":")).encode()

    def deserialize(self, data: bytes) -> Any:
        """Return the value of the JSON."""
        return json.loads(data)


class MsgpackSerializer:
    """Serializer for items that MessagePack can represent, with distinct strings and bytes."""

    def serialize(self, item: Any) -> bytes:
        """Return the item as MessagePack."""
        packed: bytes = msgpack.packb(item, use_bin_type=True)
        return packed

    def deserialize(self, data: bytes) -> Any:
        """Return the value of the MessagePack."""
        return msgpack.unpackb(data, raw=False)
