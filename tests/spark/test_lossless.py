"""Rows are written as they were pushed: they pass through Arrow as in a query, without Spark and without a cluster."""

from __future__ import annotations

from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
from hypothesis import given
from hypothesis import strategies as st

from lmqcluster.client import BatchColumns, PushOptions
from lmqcluster.client.options import packed_push_options
from lmqcluster.client.transport.requests import name_bytes
from lmqcluster.protocols.msgpack_rpc.values.arguments import typed_body
from lmqcluster.spark.base.options import Write
from lmqcluster.spark.base.schema import Extras, read_schema
from lmqcluster.spark.reading.rows import RowMaker
from lmqcluster.spark.writing.pushing import digest
from lmqcluster.spark.writing.writer import _push
from lmqcluster.wire.attributes import Value, pack_attributes
from lmqcluster.wire.legacy_msgpack import CONTENT_TYPE, pack_raw

ODD_TEXTS = st.binary(max_size=12) | st.text(alphabet="aé€😀\uef80\uefff\x00", max_size=6).map(str.encode)
NAMES = ODD_TEXTS.filter(bool)
VALUES: st.SearchStrategy[Value] = (
    st.text(alphabet="aé€😀\uef80\uefff\x007=", max_size=6)
    | st.binary(max_size=12)
    | st.integers(-(1 << 63), (1 << 63) - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from([1, 1.0, "1", "1.0", b"1", "MQ==", 0.0, -0.0, 1e300, 5e-324])
)
ATTRIBUTES = st.dictionaries(st.text("aé\uefff", min_size=1, max_size=3), VALUES, max_size=4).map(pack_attributes)
STRINGS = st.binary(max_size=40) | st.integers(0, 70_000).map(bytes)
PLAIN = st.tuples(NAMES | st.none(), STRINGS)
PACKED = st.tuples(
    st.just(CONTENT_TYPE),
    STRINGS.map(pack_raw) | STRINGS | st.sampled_from([b"\xc4\x01x", b"\xd9\x01x", b"\xda\x00\x01x"]),
)
TYPED = PLAIN | PACKED
PARTS = st.lists(st.tuples(TYPED, ATTRIBUTES), min_size=1, max_size=3)
US_MAX = 1_000_000_000_000_000
MESSAGES = st.fixed_dictionaries(
    {
        "queue": NAMES,
        "parts": PARTS,
        "priority": st.integers(-(1 << 31), (1 << 31) - 1),
        "group": NAMES | st.none(),
        "label": NAMES | st.none(),
        "ttl_us": st.integers(1, US_MAX) | st.none(),
    }
)


def reply(messages: list[dict[str, Any]]) -> BatchColumns:
    """Return the messages as a node does; one with several parts is a compound one."""
    pushed_us = 1_795_000_000_000_000
    bodies, metas = [], []
    for message in messages:
        parts = [[kind, attributes, body] for (kind, body), attributes in message["parts"]]
        (kind, attributes, body) = parts[0] if len(parts) == 1 else (None, b"", parts)
        bodies.append(body)
        metas.append([[kind, attributes], 1])
    count = len(messages)
    ttls = [message["ttl_us"] for message in messages]
    return BatchColumns(
        {
            b"queue": [[message["queue"], 1] for message in messages],
            b"id": [b"0190-", list(range(count))],
            b"sequence": list(range(count)),
            b"due": [pushed_us] * count,
            b"retry": [2] * count,
            b"meta": metas,
            b"body": bodies,
            b"delivery": [1] * count,
            b"pushed": [pushed_us] * count,
            b"priority": [message["priority"] for message in messages],
            b"group": [message["group"] for message in messages],
            b"label": [message["label"] for message in messages],
            b"origin": [None] * count,
            b"expires": [None if ttl is None else pushed_us + ttl for ttl in ttls],
        }
    )


class Taker:
    """Receives rows in place of a `Pusher`, as a node stores them."""

    def __init__(self) -> None:
        self.stored: list[Any] = []
        self.digests: list[bytes] = []

    def add(self, queue: str, values: Any, _keys: Any, types: Any, options: Any) -> None:
        for value, kind, option in zip(values, types, options, strict=True):
            packed = packed_push_options(option or PushOptions())
            body = typed_body(value, None if kind is None else name_bytes(kind))
            self.stored.append((name_bytes(queue), body, packed.pop("attributes", b""), as_stored(packed)))
            self.digests.append(digest(queue, value, kind, option))


def as_stored(options: dict[str, Any]) -> dict[str, Any]:
    ttl_s = options.pop("ttl", None)
    return {**options, **({} if ttl_s is None else {"ttl_us": max(1, round(ttl_s * 1e6))})}


def wanted(message: dict[str, Any]) -> list[Any]:
    """Return what the pushes of a message set."""
    options = {name: message[name] for name in ("priority", "group", "label", "ttl_us") if message[name]}
    return [(message["queue"], (body, kind), attributes, options) for (kind, body), attributes in message["parts"]]


@given(st.lists(MESSAGES, min_size=1, max_size=4))
def test_rows_that_were_read_are_written_as_pushed(messages: list[dict[str, Any]]) -> None:
    batch = RowMaker(read_schema(Extras(attributes=True, delivery=True)), explode=True).batch(reply(messages))
    batch = pa.ipc.open_stream(stream(batch)).read_next_batch()
    taker = Taker()
    _push(batch, Write.parse({"lmq.servers": "n:1"}), taker)  # type: ignore[arg-type]
    pushed = [row for message in messages for row in wanted(message)]
    assert sorted(taker.stored, key=repr) == sorted(pushed, key=repr)
    # The cluster distinguishes rows that are stored differently.
    assert len(set(taker.digests)) == len(set(map(repr, pushed)))


def stream(batch: pa.RecordBatch) -> Any:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue()
