"""Messages to rows, without Spark's machinery and without a cluster."""

from __future__ import annotations

from typing import Any

import msgpack
import pytest
from pyspark.sql.types import StructType

from lmqcluster.client import BatchColumns
from lmqcluster.spark.base.schema import Extras, read_schema
from lmqcluster.spark.reading.rows import RowMaker
from lmqcluster.wire.attributes import Attributes, pack_attributes

MSGPACK = b"application/x-msgpack"
ID = "0190-{:012x}"


def message(
    body: bytes | list[Any], kind: bytes | None = MSGPACK, attributes: Attributes | None = None
) -> tuple[Any, ...]:
    """Return body and metadata of a message."""
    return body, [kind, pack_attributes(attributes)]


def columns(*messages: tuple[Any, ...], ids: bool = True) -> BatchColumns:
    """Return a node's reply with messages of the queue ``jobs``."""
    count = len(messages)
    return BatchColumns(
        {
            b"queue": [[b"jobs", count]],
            b"id": [b"0190-", list(range(count))] if ids else None,
            b"incarnation": b"0190",
            b"sequence": [100 + number for number in range(count)],
            b"due": [1_000_000 * number for number in range(count)],
            b"retry": [2] * count,
            b"meta": [[meta, 1] for _, meta in messages],
            b"body": [body for body, _ in messages],
        }
    )


def rows(batch: BatchColumns, *, explode: bool = False) -> list[dict[str, Any]]:
    """Return the rows with all columns."""
    found: list[dict[str, Any]] = (
        RowMaker(read_schema(Extras(attributes=True)), explode=explode).batch(batch).to_pylist()
    )
    return found


def raw(value: object) -> bytes:
    """Return the value in the MessagePack that LMQ's clients use."""
    packed: bytes = msgpack.packb(value, use_bin_type=False)
    return packed


SIZES = [0, 1, 31, 32, 255, 256, 65_535, 65_536]


@pytest.mark.parametrize("size", SIZES)
def test_strings_pushed_over_rpc_arrive_unchanged(size: int) -> None:
    (row,) = rows(columns(message(raw(b"x" * size))))
    assert (row["value"], row["content_type"]) == (b"x" * size, None)


@pytest.mark.parametrize(
    "body", [msgpack.packb(b"x" * size) for size in SIZES] + [b"\xd9\x01x", b"\xda\x00\x01x", b"\xdb\x00\x00\x00\x01x"]
)
def test_strings_that_are_packed_differently_stay_messagepack(body: bytes) -> None:
    (row,) = rows(columns(message(body)))
    assert (row["value"], row["content_type"]) == (body, "application/x-msgpack")


@pytest.mark.parametrize("value", [None, 1, -1, 1.5, True, [], ["a"], {"a": 1}])
def test_other_values_pushed_over_rpc_stay_messagepack(value: object) -> None:
    (row,) = rows(columns(message(raw(value))))
    assert (row["value"], row["content_type"]) == (raw(value), "application/x-msgpack")


@pytest.mark.parametrize("body", [b"", b"\xa5ab", b"\xa1abc", b"\xda", b"\xdb\x00\x00"])
def test_invalid_messagepack_is_left_unchanged(body: bytes) -> None:
    (row,) = rows(columns(message(body)))
    assert (row["value"], row["content_type"]) == (body, "application/x-msgpack")


@pytest.mark.parametrize("kind", [b"text/plain", None, b"odd \xff"])
def test_bodies_pushed_over_http_arrive_unchanged(kind: bytes | None) -> None:
    (row,) = rows(columns(message(b"\xa1a", kind)))
    assert row["value"] == b"\xa1a"
    assert row["content_type"] == {None: "", b"text/plain": "text/plain", b"odd \xff": "odd \uefff"}[kind]


def test_every_message_has_its_own_columns() -> None:
    first, second, third = rows(columns(message(raw("a")), message(b"b", b"text/plain"), message(raw(3))))
    assert [row["value"] for row in (first, second, third)] == [b"a", b"b", b"\x03"]
    assert [row["content_type"] for row in (first, second, third)] == [None, "text/plain", "application/x-msgpack"]
    assert [row["offset"] for row in (first, second, third)] == [100, 101, 102]
    assert [row["message_id"] for row in (first, second, third)] == [ID.format(number) for number in range(3)]
    assert [row["timestamp"].timestamp() for row in (first, second, third)] == [0, 1, 2]
    assert {row["queue"] for row in (first, second, third)} == {"jobs"}


def test_details_are_columns_of_the_messages_and_of_their_parts() -> None:
    reply = {
        b"queue": [[b"jobs", 2]],
        b"id": None,
        b"incarnation": b"0190",
        b"sequence": [1, 2],
        b"due": [0, 0],
        b"retry": [2, 1 << 40],
        b"meta": [[[b"text/plain", b""], 1], [[None, b""], 1]],
        b"body": [b"a", COMPOUND],
        b"delivery": [1, 3],
        b"pushed": [1_000_000, 2_000_000],
        b"priority": [-5, 0],
        b"group": [b"odd \xff", None],
        b"label": [None, b"l"],
        b"origin": [None, [b"odd \xff", b"expired", 3_000_000, 4, 7, 2_000_000]],
        b"expires": [1_250_000, None],
    }
    maker = RowMaker(read_schema(Extras(delivery=True)), explode=True)
    assert maker.details
    found = maker.batch(BatchColumns(reply)).to_pylist()
    assert [row["delivery"] for row in found] == [1, 3, 3, 3]
    assert [row["deliveries_left"] for row in found] == [2, 1 << 40, 1 << 40, 1 << 40]
    assert [row["type"] for row in found] == ["normal", "compound", "compound", "compound"]
    assert [(row["part"], row["parts"]) for row in found] == [(None, None), (0, 3), (1, 3), (2, 3)]
    assert [row["pushed_at"].timestamp() for row in found] == [1, 2, 2, 2]
    assert [row["priority"] for row in found] == [-5, 0, 0, 0]
    assert [row["group"] for row in found] == ["odd \uefff", None, None, None]
    assert [row["label"] for row in found] == [None, "l", "l", "l"]
    assert found[0]["origin"] is None
    origin = found[1]["origin"]
    assert found[3]["origin"] == origin
    assert (origin.pop("at").timestamp(), origin.pop("pushed_at").timestamp()) == (3, 2)
    assert origin == {"queue": "odd \uefff", "reason": "expired", "deliveries": 4, "offset": 7}
    assert [row["ttl"] for row in found] == [0.25, None, None, None]
    assert {row["incarnation"] for row in found} == {"0190"}
    assert [row["expires_at"] and row["expires_at"].timestamp() for row in found] == [1.25, None, None, None]


def test_details_are_not_requested_if_no_column_needs_them() -> None:
    assert not RowMaker(read_schema(Extras(attributes=True)), explode=False).details


def test_attributes_are_texts_and_the_types_of_those_that_are_no_strings() -> None:
    values: Attributes = {"text": "7", "count": -7, "share": 1e16, "raw": b"\xff\x00"}
    first, second = rows(columns(message(b"a", b"text/plain", values), message(b"b")))
    assert dict(first["attributes"]) == {"text": "7", "count": "-7", "share": "1e+16", "raw": "/wA="}
    assert dict(first["attribute_types"]) == {"count": "integer", "share": "double", "raw": "binary"}
    assert (second["attributes"], second["attribute_types"]) == ([], [])


def test_peeked_messages_have_no_id() -> None:
    (row,) = rows(columns(message(raw("a")), ids=False))
    assert row["message_id"] is None


COMPOUND = [
    [MSGPACK, b"", raw("a")],
    [b"text/plain", pack_attributes({"n": 7}), b"b"],
    [MSGPACK, b"", raw([1])],
]


def test_a_compound_message_is_a_list_of_its_contents() -> None:
    (row,) = rows(columns(message(COMPOUND, None)))
    assert msgpack.unpackb(row["value"], raw=True) == [b"a", b"b", [1]]
    assert row["content_type"] == "application/x-msgpack"
    assert row["attributes"] == []
    schema = StructType([field for field in read_schema(Extras(delivery=True)) if field.name in ("type", "part")])
    maker = RowMaker(schema, explode=False)
    assert maker.bodies, "the body shows the type"
    assert maker.batch(columns(message(COMPOUND, None))).to_pylist() == [{"type": "compound", "part": None}]


def test_a_compound_message_explodes_into_its_parts() -> None:
    found = rows(columns(message(raw("x")), message(COMPOUND, None), message(raw("y"))), explode=True)
    assert [row["value"] for row in found] == [b"x", b"a", b"b", raw([1]), b"y"]
    assert [row["offset"] for row in found] == [100, 101, 101, 101, 102]
    assert [row["content_type"] for row in found] == [None, None, "text/plain", "application/x-msgpack", None]
    assert [row["attributes"] for row in found] == [[], [], [("n", "7")], [], []]
    assert [row["attribute_types"] for row in found] == [[], [], [("n", "integer")], [], []]
    assert found[1]["message_id"] == ID.format(1)


def test_only_the_columns_wanted_are_made_in_their_order() -> None:
    schema = StructType(
        [field for name in ("offset", "value") for field in read_schema(Extras()) if field.name == name]
    )
    batch = RowMaker(schema, explode=False).batch(columns(message(raw("a"))))
    assert batch.schema.names == ["offset", "value"]


def test_a_queue_name_that_is_not_utf8_keeps_its_bytes() -> None:
    batch = columns(message(raw("a")))
    batch.queues = [(b"caf\xe9".decode("utf-8", "surrogateescape"), 1)]
    (row,) = rows(batch)
    assert row["queue"] == "caf\uefe9"
