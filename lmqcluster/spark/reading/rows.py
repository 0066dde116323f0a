"""Converts messages to Arrow record batches, a column at a time. See `schema` for the columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from inspect import signature
from itertools import chain, islice, repeat
from typing import Any, Final, NamedTuple

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from lmqcluster.client import BatchColumns
from lmqcluster.client.transport.replies import name_text
from lmqcluster.wire.attributes import unpack_attributes
from lmqcluster.wire.legacy_msgpack import CONTENT_TYPE, pack_raw, raw_head_bytes

from ..base.attributes import attribute_entries
from ..base.schema import DELIVERY_COLUMNS
from ..base.texts import column_text

__all__ = ["RowMaker", "arrow_schema"]

_MSGPACK: Final = CONTENT_TYPE.decode()
_OF_BODIES: Final = frozenset({"value", "content_type", "type"})
"""Columns that need the bodies."""
_Entries = list[tuple[str, str]]


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the schema of record batches with these columns, with times in UTC."""
    convert: Any = to_arrow_schema
    # Before PySpark 4.2 this argument does not exist, and times are in UTC.
    zone = {"timezone": "UTC"} if "timezone" in signature(convert).parameters else {}
    return convert(schema, **zone)


class RowMaker:
    """Converts messages to rows with the columns of a schema.

    Attributes:
        details: whether the columns need details of the messages, which nodes send only on request.
        bodies: whether the columns need the bodies, which nodes can omit.
    """

    def __init__(self, schema: StructType, *, explode: bool) -> None:
        """Take the requested columns, and whether each part of a compound message is a separate row."""
        self._schema = arrow_schema(schema)
        self._columns = [_COLUMNS[name] for name in schema.fieldNames()]
        self._explode = explode
        self.details = not DELIVERY_COLUMNS.isdisjoint(schema.fieldNames())
        self.bodies = explode or not _OF_BODIES.isdisjoint(schema.fieldNames())

    def batch(self, messages: BatchColumns) -> pa.RecordBatch:
        """Return the rows of some messages, in order."""
        compound = self._explode and any(type(body) is list for body in messages.bodies)
        rows = _exploded(messages) if compound else _Rows(messages, messages.metas, messages.bodies, None, None)
        arrays = [
            pa.array(column(rows), type=field.type) for column, field in zip(self._columns, self._schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


class _Part(NamedTuple):
    """The index of a row's part in its message, from 0, and the number of parts."""

    number: int
    total: int


class _Rows:
    """The source of rows: messages, or, if some are compound, messages and parts.

    Attributes:
        metas: content type, packed attributes, and the number of consecutive bodies they apply to.
        bodies: one for each row.
        parents: for each row, the index of its message; None if each row is a message.
        parts: for each row, its part, None for a whole message; None if each row is a message.
    """

    def __init__(
        self,
        messages: BatchColumns,
        metas: Sequence[tuple[str | None, bytes, int]],
        bodies: Sequence[bytes | list[Any]],
        parents: list[int] | None,
        parts: list[_Part | None] | None,
    ) -> None:
        self.messages = messages
        self.metas = metas
        self.bodies = bodies
        self.parents = parents
        self.parts = parts
        self._values: list[bytes] | None = None
        self._entries: list[tuple[_Entries, _Entries]] | None = None

    def of_messages(self, column: Sequence[Any]) -> Sequence[Any]:
        """Convert a column of the messages to a column of the rows."""
        return column if self.parents is None else [column[parent] for parent in self.parents]

    def values(self) -> list[bytes]:
        if self._values is None:
            self._values = []
            bodies = iter(self.bodies)
            for kind, _, count in self.metas:
                value = _msgpack_value if kind == _MSGPACK else _plain_value
                self._values += map(value, islice(bodies, count))
        return self._values

    def content_types(self) -> list[str | None]:
        kinds = chain.from_iterable(repeat(kind, count) for kind, _, count in self.metas)
        return [
            _MSGPACK
            if type(body) is list
            else None
            if kind == _MSGPACK and value is not body
            else column_text(kind or "")
            for kind, body, value in zip(kinds, self.bodies, self.values(), strict=True)
        ]

    def attribute_entries(self) -> list[tuple[_Entries, _Entries]]:
        """Return the entries of ``attributes`` and of ``attribute_types`` for each row."""
        if self._entries is None:
            entries = ((attribute_entries(unpack_attributes(packed)), count) for _, packed, count in self.metas)
            self._entries = list(chain.from_iterable(repeat(one, count) for one, count in entries))
        return self._entries

    def types(self) -> list[str]:
        parts = repeat(None, len(self.bodies)) if self.parts is None else self.parts
        return [
            "normal" if part is None and isinstance(body, bytes) else "compound"
            for body, part in zip(self.bodies, parts, strict=True)
        ]

    def of_parts(self, column: Callable[[_Part], int]) -> Sequence[int | None]:
        return _nulls(self) if self.parts is None else [None if part is None else column(part) for part in self.parts]


def _exploded(messages: BatchColumns) -> _Rows:
    metas: list[tuple[str | None, bytes, int]] = []
    bodies: list[bytes | list[Any]] = []
    parents: list[int] = []
    parts: list[_Part | None] = []
    message_metas = chain.from_iterable(repeat(meta, meta[2]) for meta in messages.metas)
    for parent, (body, (kind, attributes, _)) in enumerate(zip(messages.bodies, message_metas, strict=True)):
        if isinstance(body, bytes):
            metas.append((kind, attributes, 1))
            bodies.append(body)
            parents.append(parent)
            parts.append(None)
            continue
        for number, (part_kind, part_attributes, content) in enumerate(body):
            metas.append((None if part_kind is None else name_text(part_kind), part_attributes, 1))
            bodies.append(content)
            parents.append(parent)
            parts.append(_Part(number, len(body)))
    return _Rows(messages, metas, bodies, parents, parts)


# --- values -------------------------------------------------------------------------------------------------------


def _msgpack_value(body: bytes | list[Any]) -> bytes:
    if not isinstance(body, bytes):
        return _plain_value(body)
    # Any HTTP client may label a body as MessagePack; one that is not packed like an RPC push is kept unchanged.
    return body[skip:] if (skip := raw_head_bytes(body)) else body


def _plain_value(body: bytes | list[Any]) -> bytes:
    if isinstance(body, bytes):
        return body
    parts = [content if kind == CONTENT_TYPE else pack_raw(content) for kind, _, content in body]
    return b"".join((b"\xdd", len(parts).to_bytes(4, "big"), *parts))


# --- columns ------------------------------------------------------------------------------------------------------


def _queues(rows: _Rows) -> Sequence[Any]:
    names = [(column_text(name), count) for name, count in rows.messages.queues]
    return rows.of_messages(list(chain.from_iterable(repeat(name, count) for name, count in names)))


def _ids(rows: _Rows) -> Sequence[Any]:
    ids = rows.messages.ids
    return _nulls(rows) if ids is None else rows.of_messages(ids)


def _details(rows: _Rows, name: str) -> Sequence[Any]:
    column: Sequence[Any] = getattr(rows.messages.details, name)
    return rows.of_messages(column)


def _texts(rows: _Rows, name: str) -> Sequence[Any]:
    return [None if text is None else column_text(text) for text in _details(rows, name)]


def _times_to_live(rows: _Rows) -> Sequence[Any]:
    times = zip(_details(rows, "pushed_us"), _details(rows, "expires_us"), strict=True)
    return [None if expires_us is None else max(1, expires_us - pushed_us) / 1e6 for pushed_us, expires_us in times]


def _origins(rows: _Rows) -> Sequence[Any]:
    return [None if one is None else _origin(*one) for one in _details(rows, "origins")]


def _origin(queue: bytes, reason: bytes, at_us: int, deliveries: int, sequence: int, pushed_us: int) -> dict[str, Any]:
    return {
        "queue": column_text(queue),
        "reason": column_text(reason),
        "at": at_us,
        "deliveries": deliveries,
        "offset": sequence,
        "pushed_at": pushed_us,
    }


def _nulls(rows: _Rows) -> Sequence[Any]:
    return [None] * len(rows.bodies)


_COLUMNS: Final[dict[str, Callable[[_Rows], Sequence[Any]]]] = {
    "value": _Rows.values,
    "queue": _queues,
    "offset": lambda rows: rows.of_messages(rows.messages.sequences),
    "timestamp": lambda rows: rows.of_messages(rows.messages.due_us),
    "message_id": _ids,
    "content_type": _Rows.content_types,
    "attributes": lambda rows: [texts for texts, _ in rows.attribute_entries()],
    "attribute_types": lambda rows: [types for _, types in rows.attribute_entries()],
    "delivery": lambda rows: _details(rows, "deliveries"),
    "deliveries_left": lambda rows: rows.of_messages(rows.messages.retries),
    "pushed_at": lambda rows: _details(rows, "pushed_us"),
    "priority": lambda rows: _details(rows, "priorities"),
    "group": lambda rows: _texts(rows, "groups"),
    "label": lambda rows: _texts(rows, "labels"),
    "origin": _origins,
    "expires_at": lambda rows: _details(rows, "expires_us"),
    "ttl": _times_to_live,
    "type": _Rows.types,
    "part": lambda rows: rows.of_parts(lambda part: part.number),
    "parts": lambda rows: rows.of_parts(lambda part: part.total),
    "incarnation": lambda rows: [rows.messages.incarnation] * len(rows.bodies),
}
