"""Columns that can be read and written."""

from __future__ import annotations

import pytest
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from lmqcluster.spark.base.attributes import ATTRIBUTE_COLUMNS
from lmqcluster.spark.base.errors import SchemaError
from lmqcluster.spark.base.schema import DELIVERY_COLUMNS, Extras, check_read_schema, check_write_schema, read_schema

ALL = Extras(attributes=True, delivery=True)


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
        ("attributes", "map<string,string>"),
        ("attribute_types", "map<string,string>"),
        ("delivery", "int"),
        ("deliveries_left", "bigint"),
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
        ("type", "string"),
        ("part", "int"),
        ("parts", "int"),
        ("incarnation", "string"),
    ]
    assert DELIVERY_COLUMNS.union(ATTRIBUTE_COLUMNS).isdisjoint(read_schema(Extras()).fieldNames())


def test_some_columns_in_any_order_can_be_read() -> None:
    check_read_schema(schema(queue=StringType, value=BinaryType), Extras())


def test_one_error_lists_all_that_cannot_be_read() -> None:
    wanted = schema(value=StringType, topic=StringType, attributes=StringType, offset=LongType, group=StringType)
    with pytest.raises(SchemaError) as caught:
        check_read_schema(wanted, Extras())
    text = str(caught.value)
    assert "column 'value' is binary, not string" in text
    assert "unknown column 'topic'" in text
    assert "'attributes' needs the option 'includeAttributes'" in text
    assert "'group' needs the option 'includeDelivery'" in text
    assert "'offset'" not in text


def test_only_the_value_is_required_for_writing() -> None:
    check_write_schema(schema(value=BinaryType), queue_option=True)
    check_write_schema(schema(value=StringType, queue=StringType), queue_option=False)


@pytest.mark.parametrize(
    ("column", "kind", "is_allowed"),
    [
        ("attributes", BinaryType(), True),
        ("attributes", LongType(), True),
        ("attributes", IntegerType(), True),
        ("attributes", DoubleType(), True),
        ("attributes", BooleanType(), False),
        ("attribute_types", StringType(), True),
        ("attribute_types", BinaryType(), False),
    ],
)
def test_attributes_are_maps_of_strings_numbers_or_bytes(column: str, kind: DataType, is_allowed: bool) -> None:
    columns = schema(value=BinaryType).add(column, MapType(StringType(), kind))
    if is_allowed:
        check_write_schema(columns, queue_option=True)
    else:
        with pytest.raises(SchemaError, match=f"column '{column}' must be map<string,string>"):
            check_write_schema(columns, queue_option=True)


def test_rows_that_were_read_can_be_written() -> None:
    check_write_schema(read_schema(ALL), queue_option=False)


def test_one_error_lists_all_that_cannot_be_written() -> None:
    with pytest.raises(SchemaError) as caught:
        check_write_schema(
            schema(value=IntegerType, body=BinaryType, idempotency_key=LongType, attributes=StringType),
            queue_option=False,
        )
    text = str(caught.value)
    assert "column 'value' must be binary or string, not int" in text
    assert "column 'body' cannot be stored" in text
    assert "column 'idempotency_key' must be binary or string, not bigint" in text
    assert "column 'attributes' must be map<string,string> or map<string,binary> or " in text
    assert "the queue is missing" in text


def test_a_missing_value_is_named() -> None:
    with pytest.raises(SchemaError, match=r"'value' \(binary or string\) is missing"):
        check_write_schema(schema(queue=StringType), queue_option=False)


def test_a_column_key_is_refused_with_a_hint() -> None:
    with pytest.raises(SchemaError, match=r"'key' cannot be stored: .* call it 'idempotency_key' if"):
        check_write_schema(schema(value=StringType, key=StringType), queue_option=True)
