"""Values decoded by JSON and Avro schemas: hostile values are bad rows with a reason, hostile schemas are
refused at once.
"""

from __future__ import annotations

import io
import json
import time
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import fastavro
import pytest

from lmqcluster.spark.decoding.avro_schema import avro_decoder
from lmqcluster.spark.decoding.decoder import BadSchemaError, decode_column
from lmqcluster.spark.decoding.json_schema import json_decoder

ORDER = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "required": ["id", "lines"],
    "properties": {
        "id": {"type": "integer", "minimum": 1},
        "note": {"type": ["string", "null"], "maxLength": 5, "pattern": "^(a|b|ab)*$"},
        "at": {"type": "string", "format": "date-time"},
        "day": {"anyOf": [{"type": "null"}, {"type": "string", "format": "date"}]},
        "state": {"type": ["string", "null"], "enum": ["new", "paid"]},
        "lines": {"type": "array", "maxItems": 3, "items": {"$ref": "#/$defs/line"}},
        "tags": {"type": "object", "additionalProperties": {"type": "string"}},
        "any": True,
        "both": {"type": ["string", "integer"]},
        "paid": {"type": "boolean"},
    },
    "$defs": {
        "line": {
            "type": "object",
            "properties": {"price": {"type": "number", "exclusiveMinimum": 0}},
            "required": ["price"],
            "additionalProperties": False,
        }
    },
}


def decode_json(schema: Any, *values: bytes | str) -> tuple[list[Any], list[str | None]]:
    """Return the rows and problems of JSON values."""
    texts = [value.encode() if isinstance(value, str) else value for value in values]
    column, problems = decode_column(texts, json_decoder(json.dumps(schema)))
    return column.to_pylist(), problems


def test_json_becomes_columns_with_the_types_of_the_schema() -> None:
    value = {
        "id": 7.0, "note": None, "at": "2026-11-25T10:00:00.5+02:00", "day": "2026-11-25", "state": "paid",
        "lines": [{"price": 1}, {"price": 2.5}], "tags": {"a": "é"}, "any": {"x": [1, None]}, "both": 5, "paid": True,
        "more": "left out",
    }  # fmt: skip
    [row, least], problems = decode_json(ORDER, json.dumps(value), '{"id":1,"lines":[]}')
    assert problems == [None, None]
    assert row == {
        "id": 7, "note": None, "at": datetime(2026, 11, 25, 8, 0, 0, 500_000, UTC), "day": date(2026, 11, 25),
        "state": "paid", "lines": [{"price": 1.0}, {"price": 2.5}], "tags": [("a", "é")], "any": '{"x":[1,null]}',
        "both": "5", "paid": True,
    }  # fmt: skip
    assert least["id"] == 1
    assert {name for name, one in least.items() if one is not None} == {"id", "lines"}


BAD_JSON = {
    b"": "is not JSON",
    b"\xff\xfe": "is not UTF-8 at byte 0",
    b"\xef\xbb\xbf{}": "is not JSON",
    b"[1": "is not JSON",
    b"{} {}": "is not JSON: Extra data at character 3",
    b"null": "$: is null, not an object",
    b'{"id":NaN,"lines":[]}': "NaN is not a number",
    b'{"id":1e999,"lines":[]}': "$.id: is a number, not an integer",
    b'{"id":true,"lines":[]}': "$.id: is a boolean",
    b'{"id":"1","lines":[]}': "$.id: is a string, not an integer",
    b'{"id":1.5,"lines":[]}': "$.id: is a number, not an integer",
    b'{"id":0,"lines":[]}': "$.id: is out of its bounds",
    b'{"id":9223372036854775808,"lines":[]}': "$.id: does not fit 64 bits",
    b'{"id":' + b"9" * 5000 + b',"lines":[]}': "too many digits",
    b'{"id":1,"id":2,"lines":[]}': "a duplicate property",
    b'{"id":1}': "$: has no property 'lines'",
    b'{"id":null,"lines":[]}': "$.id: is null",
    b'{"id":1,"lines":{}}': "$.lines: is an object, not an array",
    b'{"id":1,"lines":[{},{},{},{}]}': "$.lines: has 4 elements",
    b'{"id":1,"lines":[{"price":1},{"price":"x"}]}': "$.lines[1].price: is a string",
    b'{"id":1,"lines":[{"price":0}]}': "$.lines[0].price: is out of its bounds",
    b'{"id":1,"lines":[{"price":1,"<script>\\n":2}]}': "$.lines[0]: has an unknown property, '<script>\\n'",
    b'{"id":1,"lines":[],"note":"c"}': "$.note: does not match its pattern",
    b'{"id":1,"lines":[],"note":"ababab"}': "$.note: has 6 characters",
    b'{"id":1,"lines":[],"state":null}': "$.state: is not one of the allowed values",
    b'{"id":1,"lines":[],"state":"lost"}': "$.state: is not one of the allowed values",
    b'{"id":1,"lines":[],"at":"2026-11-25T10:00:00"}': "$.at: is not a date-time with an offset",
    b'{"id":1,"lines":[],"at":"yesterday"}': "$.at: is not a date-time",
    b'{"id":1,"lines":[],"at":"0001-01-01T00:00:00+23:00"}': "$.at: is not a date-time",
    b'{"id":1,"lines":[],"day":"2026-02-30"}': "$.day: is not a date",
    b'{"id":1,"lines":[],"any":"\\ud800"}': "$.any: has half of a surrogate pair",
    b'{"id":1,"lines":[],"tags":{"\\udfff":"x"}}': "$.tags: has half of a surrogate pair",
    b'{"id":1,"lines":[],"both":1.5}': "$.both: is a number, not one of string, integer",
    b'{"id":1,"lines":[],"any":' + b"[" * 100_000 + b"]" * 100_000 + b"}": "nested too deeply",
    b'{"id":1,"lines":[],"any":"' + b"x" * (16 << 20) + b'"}': "a value of more than 16777216 bytes",
}


@pytest.mark.parametrize("value", BAD_JSON, ids=lambda value: value[:40])
def test_a_bad_value_gives_no_row_and_its_neighbours_do(value: bytes) -> None:
    good = '{"id":1,"lines":[]}'
    rows, problems = decode_json(ORDER, good, value, good)
    assert [row is not None for row in rows] == [True, False, True]
    assert [problems[0], problems[2]] == [None, None]
    assert problems[1] is not None
    assert BAD_JSON[value] in problems[1]
    assert problems[1].isascii()
    assert problems[1].isprintable()
    assert len(problems[1]) <= 300


def test_a_value_costs_time_in_proportion_to_its_size() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": "^(a+)+$"}, "b": {"enum": [[1]]}}}
    attack = json.dumps({"a": "a" * 500_000 + "!", "b": [[0]] * 100_000})
    begin = time.process_time()
    _rows, problems = decode_json(schema, attack)
    assert problems[0] is not None
    assert time.process_time() - begin < 30, "a pattern that backtracks takes longer than the universe is old"


def doubling(levels: int) -> dict[str, Any]:
    """Return a record of two records of two records, and so on, each referred to by name after the first time."""
    schema: Any = "int"
    for level in range(levels):
        fields = [{"name": "a", "type": schema}, {"name": "b", "type": f"R{level - 1}" if level else "int"}]
        schema = {"type": "record", "name": f"R{level}", "fields": fields}
    return schema


def nested(depth: int) -> dict[str, Any]:
    """Return a schema of arrays in arrays."""
    return {"type": "array", "items": nested(depth - 1)} if depth else {"type": "integer"}


BAD_JSON_SCHEMAS = [
    ("{", "is not JSON"),
    ("[" * 100_000, "is not JSON"),
    ("false", "must be an object or true"),
    ('{"type":"thing"}', "type must be of"),
    ('{"type":"null"}', "always null"),
    ('{"type":"object"}', None),
    ('{"type":"object","additionalProperties":false}', "has no columns"),
    ('{"type":"array","uniqueItems":true}', "'uniqueItems' is not supported"),
    ('{"properties":{}}', "'properties' is not supported, or needs a type"),
    ('{"allOf":[]}', "'allOf' is not supported"),
    ('{"oneOf":[{"type":"string"},{"type":"integer"}]}', "oneOf is supported for a schema and null only"),
    ('{"$ref":"http://example.org/schema.json"}', "is not #/$defs/NAME"),
    ('{"$ref":"#/$defs/a","$defs":{"a":{"$ref":"#/$defs/a"}}}', "refers to itself"),
    ('{"type":"object","properties":{"a":{"$ref":"#"}}}', "is not #/$defs/NAME"),
    (json.dumps(nested(40)), "nested more than 32 times"),
    (json.dumps({"type": "object", "properties": {f"p{n}": True for n in range(3000)}}), "more than 2000 parts"),
    ('{"type":"object","properties":{"a":true,"A":true}}', "appears twice"),
    ('{"type":"object","properties":{"":true}}', "must have 1 to 255 bytes"),
    ('{"type":"object","properties":{"a;b":true}}', "cannot be the name of a column"),
    ('{"type":"object","properties":[]}', "properties must be an object"),
    (
        '{"type":"object","properties":{"a":true},"additionalProperties":{"type":"string"}}',
        "cannot both become columns",
    ),
    ('{"type":"string","pattern":"("}', "pattern is not RE2"),
    ('{"type":"string","pattern":"(?=a)"}', "pattern is not RE2"),
    ('{"type":"string","minLength":-1}', "minLength must be a whole number"),
    ('{"type":"integer","minimum":"1"}', "minimum must be a number"),
    ('{"enum":[]}', "enum must be a list"),
]


@pytest.mark.parametrize(("schema", "text"), BAD_JSON_SCHEMAS, ids=[schema[:50] for schema, _ in BAD_JSON_SCHEMAS])
def test_a_json_schema_that_would_not_be_checked_is_refused(schema: str, text: str | None) -> None:
    if text is None:
        json_decoder(schema)
        return
    with pytest.raises(BadSchemaError) as raised:
        json_decoder(schema)
    assert text in str(raised.value)
    assert len(str(raised.value)) < 500


AVRO: dict[str, Any] = {
    "type": "record", "name": "Order", "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "local", "type": {"type": "long", "logicalType": "local-timestamp-millis"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2}},
        {"name": "key", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}},
        {"name": "before", "type": ["State", "null"]},
        {"name": "lines", "type": {"type": "array", "items": {"type": "record", "name": "Line", "fields": [
            {"name": "hash", "type": {"type": "fixed", "name": "Hash", "size": 4}},
            {"name": "count", "type": "int"},
        ]}}},
        {"name": "tags", "type": {"type": "map", "values": "double"}},
        {"name": "odd", "type": {"type": "long", "logicalType": "of-no-standard"}},
    ],
}  # fmt: skip
DATUM = {
    "id": -5, "note": "é", "at": datetime(2026, 11, 25, 8, 0, 0, 5, UTC), "local": datetime(2026, 11, 25, 8),  # noqa: DTZ001
    "day": date(2026, 11, 25), "price": Decimal("123.45"), "key": "c1361d1a-7114-48a3-80f3-000000000001", "state": "PAID",
    "before": "NEW", "lines": [{"hash": b"\0\1\2\3", "count": 3}], "tags": {"a": 0.5}, "odd": 9,
}  # fmt: skip


def avro_bytes(schema: Any, datum: Any) -> bytes:
    """Return a datum as its producer writes it."""
    written = io.BytesIO()
    fastavro.schemaless_writer(written, fastavro.parse_schema(json.loads(json.dumps(schema))), datum)
    return written.getvalue()


def decode_avro(schema: Any, *values: bytes) -> tuple[list[Any], list[str | None]]:
    """Return the rows and problems of Avro values."""
    column, problems = decode_column(values, avro_decoder(json.dumps(schema)))
    return column.to_pylist(), problems


def test_avro_becomes_columns_with_the_types_of_the_schema() -> None:
    [row], problems = decode_avro(AVRO, avro_bytes(AVRO, DATUM))
    assert problems == [None]
    assert row == DATUM | {"tags": [("a", 0.5)]}


def test_a_datum_cut_anywhere_is_a_bad_row() -> None:
    whole = avro_bytes(AVRO, DATUM)
    rows, problems = decode_avro(AVRO, *(whole[:end] for end in range(len(whole))), whole, whole + b"\0")
    assert [row is not None for row in rows] == [False] * len(whole) + [True, False]
    assert problems[-1] == "has 1 bytes after the datum"
    assert all(problems[: len(whole)])


ARRAY = {"type": "array", "items": "int"}
MAP = {"type": "map", "values": "int"}
MOMENT = {"type": "long", "logicalType": "timestamp-micros"}
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 2}
HUGE = b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"
"""2**63 - 1."""
BAD_AVRO = {
    "an array that claims 2**63 - 1 elements": (ARRAY, HUGE + b"\0" * 50),
    "a negative count": (ARRAY, b"\xfd\xff\xff\xff\xff\xff\xff\xff\xff\x01" + HUGE),
    "a string that claims 2**63 - 1 bytes": ("string", HUGE + b"abc"),
    "a string of negative length": ("string", b"\x01abc"),
    "a string that is not UTF-8": ("string", b"\x02\xff"),
    "a map of a key that is not UTF-8": (MAP, b"\x02\x02\xff\x02\0"),
    "a union of no such branch": (["null", "int"], b"\x08\x02"),
    "a union of a negative branch": (["null", "int"], b"\x05\x02"),
    "an enum of no such symbol": ({"type": "enum", "name": "E", "symbols": ["A"]}, b"\x08"),
    "an int of 64 bits": ("int", HUGE),
    "a moment out of range": (MOMENT, HUGE),
    "a decimal of too many digits": (DECIMAL, b"\x06\x7f\xff\xff"),
    "an endless varint": ("long", b"\xff" * 1000),
}


@pytest.mark.parametrize("case", BAD_AVRO)
def test_a_hostile_datum_is_a_bad_row(case: str) -> None:
    schema, value = BAD_AVRO[case]
    begin = time.process_time()
    [row], [problem] = decode_avro(schema, value)
    assert row is None
    assert problem
    assert time.process_time() - begin < 10


BAD_AVRO_SCHEMAS = [
    ("{", "is not JSON"),
    ("[" * 100_000, "is not JSON"),
    ("5", "a schema must be a name"),
    ('"thing"', "unknown type 'thing'"),
    ('"null"', "always null"),
    ('["int","string"]', "one type beside null"),
    ('{"type":"record","name":"R"}', "a record needs fields"),
    ('{"type":"record","name":"R","fields":[]}', "a record needs fields"),
    ('{"type":"record","fields":[{"name":"a","type":"int"}]}', "needs a name"),
    ('{"type":"record","name":"R","fields":[{"name":"a","type":["null","R"]}]}', "contains itself"),
    ('{"type":"array","items":{"type":"fixed","name":"F","size":0}}', "must take bytes"),
    ('{"type":"array","items":"null"}', "always null"),
    ('{"type":"enum","name":"E","symbols":["a","a"]}', "is not Avro"),
    ('{"type":"fixed","name":"F","size":-1}', "must be a whole number"),
    ('{"type":"bytes","logicalType":"decimal","precision":99}', "precision of 1 to 38"),
    (json.dumps(["null"] * 5 + [{"type": "array", "items": "int"}] * 2), "one type beside null"),
    (json.dumps(doubling(25)), "counting repeated types"),
    ('{"type":"array","items":' * 40 + '"int"' + "}" * 40, "nested more than 32 times"),
    (
        json.dumps({"type": "record", "name": "R", "fields": [{"name": f"f{n}", "type": "int"} for n in range(3000)]}),
        "more than 2000 parts",
    ),
    ('{"type":"record","name":"R","fields":[{"name":"a","type":"int"},{"name":"A","type":"int"}]}', "appears twice"),
]


@pytest.mark.parametrize(("schema", "text"), BAD_AVRO_SCHEMAS, ids=[schema[:50] for schema, _ in BAD_AVRO_SCHEMAS])
def test_an_avro_schema_that_cannot_become_a_column_is_refused(schema: str, text: str) -> None:
    with pytest.raises(BadSchemaError) as raised:
        avro_decoder(schema)
    assert text in str(raised.value)
    assert len(str(raised.value)) < 500
