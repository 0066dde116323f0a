"""Structures and method arguments of Kestrel's Thrift interface."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from thrift.Thrift import TType

__all__ = ["METHODS", "Field", "Item", "QueueInfo"]


class Field(NamedTuple):
    """An argument: its name, its type, its default, and the type of its elements if it is a container."""

    name: str
    kind: int
    default: object = None
    element: int | None = None


class Item(NamedTuple):
    """An item; `id` is 0 if it needs no confirmation."""

    data: bytes
    id: int


class QueueInfo(NamedTuple):
    """Answer to `peek`: the head and the figures of a queue; `age` is in milliseconds."""

    head_item: bytes | None = None
    items: int = 0
    bytes: int = 0
    journal_bytes: int = 0
    age: int = 0
    waiters: int = 0
    open_transactions: int = 0


_QUEUE = Field("queue_name", TType.STRING, b"")
_IDS = Field("ids", TType.SET, (), TType.I64)

METHODS: Mapping[str, Mapping[int, Field]] = {
    "put": {1: _QUEUE, 2: Field("items", TType.LIST, (), TType.STRING), 3: Field("expiration_msec", TType.I32, 0)},
    "get": {
        1: _QUEUE,
        2: Field("max_items", TType.I32, 0),
        3: Field("timeout_msec", TType.I32, 0),
        4: Field("auto_abort_msec", TType.I32, 0),
    },
    "confirm": {1: _QUEUE, 2: _IDS},
    "abort": {1: _QUEUE, 2: _IDS},
    "peek": {1: _QUEUE},
    "flush_queue": {1: _QUEUE},
    "flush_all_queues": {},
    "delete_queue": {1: _QUEUE},
    "current_status": {},
    "set_status": {1: Field("status", TType.I32, 0)},
    "get_version": {},
}
