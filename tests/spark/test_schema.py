"""Columns that can be read and written."""

from __future__ import annotations

import pytest
from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructField, StructType

from lmqcluster.spark.base.errors import SchemaError
from lmqcluster.spark.base.schema import DELIVERY_COLUMNS, Extras, check_read_schema, check_write_schema, read_schema

ALL = Extras(headers=True, delivery=True)


def schema(**columns: type[BinaryType | IntegerType | LongType | StringType]) -> StructType:
    return StructType([StructField(name, kind()) for name, kind in columns.items()])


def test_the_columns_of_a_read() -> None:
    columns = [(field.name, field.dataType.simpleString()) for field in read_schema(ALL).fields]
    assert columns == [
        ("value", "binary"),
        ("queue", "string"),
        ("offset", "bigint"),
        ("timestamp", "timestamp"),
        ("message_id", "string"),
        ("content_type", "string"),
        ("headers", "map<string,string>"),
        ("delivery", "int"),
        ("pushed_at", "timestamp"),
        ("priority", "int"),
        ("group", "string"),
        ("label", "string"),
        (
            "origin",
            "struct<queue:string,reason:string,at:timestamp,deliveries:int,offset:bigint,pushed_at:timestamp>",
        ),
        ("expires_at", "timestamp"),
        ("ttl", "double"),
        ("incarnation", "string"),
    ]
    assert DELIVERY_COLUMNS.union({"headers"}).isdisjoint(read_schema(Extras()).fieldNames())


def test_some_columns_in_any_order_can_be_read() -> None:
    check_read_schema(schema(queue=StringType, value=BinaryType), Extras())


def test_one_error_lists_all_that_cannot_be_read() -> None:
    wanted = schema(value=StringType, topic=StringType, headers=StringType, offset=LongType, group=StringType)
    with pytest.raises(SchemaError) as caught:
        check_read_schema(wanted, Extras())
    text = str(caught.value)
    assert "column 'value' is binary, not string" in text
    assert "unknown column 'topic'" in text
    assert "'headers' needs the option 'includeHeaders'" in text
    assert "'group' needs the option 'includeDelivery'" in text
    assert "'offset'" not in text


def test_only_the_value_is_required_for_writing() -> None:
    check_write_schema(schema(value=BinaryType), queue_option=True)
    check_write_schema(schema(value=StringType, queue=StringType), queue_option=False)


def test_rows_that_were_read_can_be_written() -> None:
    check_write_schema(read_schema(ALL), queue_option=False)


def test_one_error_lists_all_that_cannot_be_written() -> None:
    with pytest.raises(SchemaError) as caught:
        check_write_schema(
            schema(value=IntegerType, body=BinaryType, idempotency_key=LongType, headers=StringType), queue_option=False
        )
    text = str(caught.value)
    assert "column 'value' must be binary or string, not int" in text
    assert "column 'body' cannot be stored" in text
    assert "column 'idempotency_key' must be binary or string, not bigint" in text
    assert "column 'headers' must be map, not string" in text
    assert "the queue is missing" in text


def test_a_missing_value_is_named() -> None:
    with pytest.raises(SchemaError, match=r"'value' \(binary or string\) is missing"):
        check_write_schema(schema(queue=StringType), queue_option=False)


def test_a_column_key_is_refused_with_a_hint() -> None:
    with pytest.raises(SchemaError, match=r"'key' cannot be stored: .* call it 'idempotency_key' if"):
        check_write_schema(schema(value=StringType, key=StringType), queue_option=True)
