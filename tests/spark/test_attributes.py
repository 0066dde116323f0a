"""Attributes as columns of real reads and writes: nothing is lost between them, and bad ones are refused with the reason."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  the common alias

from lmqcluster import Client
from lmqcluster.wire.attributes import Attributes

from .test_batch_read import read
from .test_write import write

MIXED: Attributes = {
    "text": "7",
    "padded": " 7 ",
    "Base64?": "/wA=",
    "integer": "integer",
    "largest": (1 << 63) - 1,
    "smallest": -(1 << 63),
    "pi": 3.141592653589793,
    "whole": 1.0,
    "huge": 1e300,
    "tiny": 5e-324,
    "zero": -0.0,
    "raw": bytes(range(256)),
    "nothing": b"",
    "Grüße 😀 \uef80": "\x00\uefff",
}


def of(client: Client, queue: str) -> list[Attributes]:
    """Return the attributes of the messages of a queue, with the types of numbers visible."""
    return [one.attributes for one in client.peek(queue, 100)]


def test_attributes_that_were_read_are_written_as_pushed(
    spark: SparkSession, servers: str, client: Client, new_queue: Callable[[], str]
) -> None:
    source, target = new_queue(), new_queue()
    pushed: list[Attributes] = [MIXED, {}, {"n": 1}]
    client.push_many(source, [b"a", b"b", b"c"], options=[{"attributes": one} for one in pushed])
    rows = read(spark, servers, subscribe=source, includeAttributes="true")
    write(rows, servers, queue=target)
    assert list(map(repr, of(client, target))) == list(map(repr, of(client, source)))
    assert of(client, target) == pushed
    assert [row["n"] for row in rows.select(F.col("attributes")["n"].alias("n")).collect()] == [None, None, "1"]


@pytest.mark.parametrize(
    ("column", "wanted"),
    [
        ("map('a', 'x', 'gone', null)", {"a": "x"}),
        ("map('a', X'FF00')", {"a": b"\xff\x00"}),
        ("map('a', 9223372036854775807)", {"a": (1 << 63) - 1}),
        ("map('a', 7)", {"a": 7}),
        ("map('a', 0.1D)", {"a": 0.1}),
        ("cast(null as map<string,string>)", {}),
    ],
)
def test_a_map_of_any_type_gives_attributes_of_this_type(
    spark: SparkSession, servers: str, client: Client, queue: str, column: str, wanted: Attributes
) -> None:
    write(spark.range(1).selectExpr("'v' as value", f"{column} as attributes"), servers, queue=queue)
    [found] = of(client, queue)
    assert repr(found) == repr(wanted)


def test_texts_become_values_of_their_types(spark: SparkSession, servers: str, client: Client, queue: str) -> None:
    attributes = "map('a', '+7', 'b', '1.5E3', 'c', '/wA=', 'd', '8', 'e', '-2', 'f', '9')"
    types = (
        "map('a', 'integer', 'b', 'double', 'c', 'binary', 'd', 'string', 'e', 'double', 'f', null, 'none', 'double')"
    )
    rows = spark.range(1).selectExpr("'v' as value", f"{attributes} as attributes", f"{types} as attribute_types")
    write(rows, servers, queue=queue)
    [found] = of(client, queue)
    assert repr(found) == repr({"a": 7, "b": 1500.0, "c": b"\xff\x00", "d": "8", "e": -2.0, "f": "9"})


def one_row(spark: SparkSession, attributes: str, types: str) -> DataFrame:
    return spark.range(1).selectExpr("'v' as value", f"{attributes} as attributes", f"{types} as attribute_types")


NONE = "cast(null as map<string,string>)"
MANY = "map_from_arrays(transform(sequence(1, 65), n -> string(n)), array_repeat('x', 65))"


@pytest.mark.parametrize(
    ("attributes", "types", "text"),
    [
        ("map('a', 'x1')", "map('a', 'integer')", "the attribute 'a' is not an integer: 'x1'"),
        ("map('a', '1.0')", "map('a', 'integer')", "the attribute 'a' is not an integer: '1.0'"),
        ("map('a', '1_0')", "map('a', 'integer')", "the attribute 'a' is not an integer: '1_0'"),
        (
            "map('a', '9223372036854775808')",
            "map('a', 'integer')",
            "the attribute 'a' is an integer of more than 64 bits",
        ),
        ("map('a', 'one')", "map('a', 'double')", "the attribute 'a' is not a decimal number: 'one'"),
        ("map('a', 'NaN')", "map('a', 'double')", "the attribute 'a' is not a decimal number: 'NaN'"),
        ("map('a', '1e999')", "map('a', 'double')", "the attribute 'a' is not a finite number"),
        ("map('a', double('NaN'))", NONE, "the attribute 'a' is not a finite number"),
        ("map('a', 'é')", "map('a', 'binary')", "the attribute 'a' is not Base64: 'é'"),
        ("map('a', 'QQ=')", "map('a', 'binary')", "the attribute 'a' is not Base64: 'QQ='"),
        (
            "map('a', 'x')",
            "map('a', 'json')",
            "the attribute 'a' has the type 'json', which is none of string, integer,",
        ),
        ("map('', 'x')", NONE, "the name of an attribute has 1 to 255 bytes"),
        (MANY, NONE, "a message has at most 64 attributes, not 65"),
        ("map('a', repeat('x', 20000))", NONE, "the attributes of a message have at most 10240 bytes"),
    ],
)
def test_attributes_that_no_message_can_have_are_refused_with_the_reason(
    spark: SparkSession, servers: str, client: Client, queue: str, attributes: str, types: str, text: str
) -> None:
    with pytest.raises(PySparkException) as caught:
        write(one_row(spark, attributes, types), servers, queue=queue)
    assert text in str(caught.value)
    assert client.backlog(queue=queue).messages == 0


def test_rows_with_other_attributes_are_other_rows_of_a_repeatable_write(
    spark: SparkSession, servers: str, client: Client, queue: str
) -> None:
    once = {"queue": queue, "lmq.application": queue, "lmq.epoch": "0"}
    write(one_row(spark, "map('a', '1', 'b', '2')", "map('a', 'integer')"), servers, **once)
    write(one_row(spark, "map('b', '2', 'a', '+1')", "map('a', 'integer', 'b', 'string')"), servers, **once)
    assert of(client, queue) == [{"a": 1, "b": "2"}]
    with pytest.raises(PySparkException, match="epoch_conflict"):
        write(one_row(spark, "map('a', '1', 'b', '2')", NONE), servers, **once)
    assert of(client, queue) == [{"a": 1, "b": "2"}]
