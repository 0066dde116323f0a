"""Builds a decoder of single datums from an Avro schema; producers write the datums without a header.

The schema is the writer's. Records become structs; dates, timestamps, decimals and UUIDs become the types of their
logical types; everything else keeps its stored type. Recursive schemas, unions with more than one type beside null, and
arrays whose elements take no bytes are refused: a few bytes could claim any number of such elements.
"""

from __future__ import annotations

import io
import json
from typing import Any, Final

from fastavro import parse_schema, schemaless_reader
from fastavro.schema import SchemaParseException
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from .decoder import FIELDS_MAX, NESTING_MAX, BadValueError, Decoder, field_name, refuse

__all__ = ["avro_decoder"]

_PRIMITIVES: Final[dict[str, tuple[DataType, int]]] = {
    "boolean": (BooleanType(), 1),
    "int": (IntegerType(), 1),
    "long": (LongType(), 1),
    "float": (FloatType(), 4),
    "double": (DoubleType(), 8),
    "bytes": (BinaryType(), 1),
    "string": (StringType(), 1),
}
_LOGICAL: Final[dict[tuple[str, str], DataType]] = {
    ("int", "date"): DateType(),
    ("long", "timestamp-millis"): TimestampType(),
    ("long", "timestamp-micros"): TimestampType(),
    ("long", "local-timestamp-millis"): TimestampNTZType(),
    ("long", "local-timestamp-micros"): TimestampNTZType(),
    ("string", "uuid"): StringType(),
}
_DIGITS_MAX: Final = 38
_ERRORS: Final = (
    ArithmeticError,
    AttributeError,
    EOFError,
    IndexError,
    KeyError,
    MemoryError,
    StopIteration,
    TypeError,
    ValueError,
)


def avro_decoder(text: str) -> Decoder:
    """Return the decoder of a schema.

    Raises:
        BadSchemaError: it is not an Avro schema, or cannot become a column.
    """
    try:
        schema = json.loads(text)
    except (ValueError, RecursionError) as exc:
        refuse("the schema", f"is not JSON: {exc}")
    walker = _Walker()
    kind, _size = walker.column(schema, "$", 0, "")
    try:
        parsed = parse_schema(schema)
    except (SchemaParseException, *_ERRORS) as exc:
        refuse("the schema", f"is not Avro: {type(exc).__name__}: {exc!s:.200}")

    def decode(value: bytes) -> Any:
        datum = io.BytesIO(value)
        try:
            found = schemaless_reader(datum, parsed, None)
            found = _for_arrow(found, kind)
        except BadValueError:
            raise
        except _ERRORS as exc:
            raise BadValueError(f"is not a datum of the schema: {type(exc).__name__}") from exc
        if datum.tell() != len(value):
            raise BadValueError(f"has {len(value) - datum.tell()} bytes after the datum")
        return found

    return Decoder(kind, decode)


class _Walker:
    """Finds the columns of a schema. Removes logical types that have no column."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[DataType, int, int] | None] = {}
        """The named types with the number of their parts; None for one that is not complete yet."""
        self._parts = 0

    def column(self, schema: Any, place: str, depth: int, space: str) -> tuple[DataType, int]:
        """Return the type of a part of the schema, and the minimum size of its values in bytes."""
        if depth > NESTING_MAX:
            refuse(place, f"the schema is nested more than {NESTING_MAX} times")
        self._count(1, place)
        if isinstance(schema, list):
            return self._union(schema, place, depth, space)
        if isinstance(schema, str):
            return self._named(schema, place, space)
        if not isinstance(schema, dict) or not isinstance(schema.get("type"), (str, dict, list)):
            refuse(place, "a schema must be a name, a union, or an object with a type")
        kind = schema["type"]
        if not isinstance(kind, str):
            return self.column(kind, place, depth + 1, space)
        if kind in ("record", "error"):
            return self._record(schema, place, depth, space)
        if kind == "array":
            return self._array(schema, place, depth, space)
        if kind == "map":
            node, _least = self.column(schema.get("values"), f"{place}.*", depth + 1, space)
            return MapType(StringType(), node), 1
        if kind == "enum":
            return self._noted(schema, space, (StringType(), 1), place)
        if kind == "fixed":
            return self._fixed(schema, place, space)
        return self._logical(schema, kind, place, space)

    def _named(self, name: str, place: str, space: str) -> tuple[DataType, int]:
        if name in _PRIMITIVES:
            return _PRIMITIVES[name]
        if name == "null":
            refuse(place, "a value that is always null has no column")
        known = name if "." in name else f"{space}.{name}"
        if known not in self._known and name not in self._known:
            refuse(place, f"unknown type {name!a:.100}")
        found = self._known[known] if known in self._known else self._known[name]
        if found is None:
            refuse(place, f"the type {name!a:.100} contains itself")
        kind, least, parts = found
        # A named type that is used again repeats all its parts.
        self._count(parts, place)
        return kind, least

    def _count(self, parts: int, place: str) -> None:
        self._parts += parts
        if self._parts > FIELDS_MAX:
            refuse(place, f"the schema has more than {FIELDS_MAX} parts, counting repeated types each time")

    def _union(self, schema: list[Any], place: str, depth: int, space: str) -> tuple[DataType, int]:
        others = [one for one in schema if one not in ("null", {"type": "null"})]
        if len(others) != 1:
            refuse(place, "a union must have one type beside null")
        node, _least = self.column(others[0], place, depth + 1, space)
        return node, 1

    def _record(self, schema: dict[str, Any], place: str, depth: int, space: str) -> tuple[DataType, int]:
        fields = schema.get("fields")
        if not isinstance(fields, list) or not fields or not all(isinstance(one, dict) for one in fields):
            refuse(place, "a record needs fields")
        inner_space = self._note(schema, space, None, place)
        before = self._parts
        taken: set[str] = set()
        columns: list[StructField] = []
        least = 0
        for one in fields:
            inner = f"{place}.{one.get('name')!s:.100}"
            name = field_name(one.get("name"), taken, inner)
            node, size = self.column(one.get("type"), inner, depth + 1, inner_space)
            columns.append(StructField(name, node))
            least += size
        self._note(schema, space, (StructType(columns), least, self._parts - before), place)
        return StructType(columns), least

    def _array(self, schema: dict[str, Any], place: str, depth: int, space: str) -> tuple[DataType, int]:
        node, least = self.column(schema.get("items"), f"{place}[]", depth + 1, space)
        if not least:
            refuse(place, "the elements of an array must take bytes")
        return ArrayType(node), 1

    def _fixed(self, schema: dict[str, Any], place: str, space: str) -> tuple[DataType, int]:
        size = schema.get("size")
        if type(size) is not int or size < 0:
            refuse(place, "the size of a fixed must be a whole number")
        kind = _decimal(schema, place) or BinaryType()
        return self._noted(schema, space, (kind, size), place)

    def _logical(self, schema: dict[str, Any], kind: str, place: str, space: str) -> tuple[DataType, int]:
        node, least = self._named(kind, place, space)
        logical = schema.get("logicalType")
        if kind == "bytes" and (decimal := _decimal(schema, place)) is not None:
            return decimal, least
        if not isinstance(logical, str) or (kind, logical) not in _LOGICAL:
            # Avro requires that unknown logical types are ignored.
            schema.pop("logicalType", None)
            return node, least
        return _LOGICAL[kind, logical], least

    def _noted(
        self, schema: dict[str, Any], space: str, kind: tuple[DataType, int], place: str
    ) -> tuple[DataType, int]:
        self._note(schema, space, (*kind, 1), place)
        return kind

    def _note(self, schema: dict[str, Any], space: str, kind: tuple[DataType, int, int] | None, place: str) -> str:
        """Record a named type, or with None that it begins; return the namespace of its content."""
        name = schema.get("name")
        if not isinstance(name, str) or not name:
            refuse(place, "a record, an enum or a fixed needs a name")
        inner = name.rpartition(".")[0] if "." in name else str(schema.get("namespace") or space)
        self._known[name if "." in name else f"{inner}.{name}"] = kind
        return inner


def _decimal(schema: dict[str, Any], place: str) -> DecimalType | None:
    if schema.get("logicalType") != "decimal":
        schema.pop("logicalType", None)
        return None
    precision, scale = schema.get("precision"), schema.get("scale", 0)
    if (
        type(precision) is not int
        or type(scale) is not int
        or not 0 <= scale <= precision
        or not 0 < precision <= _DIGITS_MAX
    ):
        refuse(place, f"a decimal must have a precision of 1 to {_DIGITS_MAX} and a scale of 0 to that")
    return DecimalType(precision, scale)


def _for_arrow(value: Any, kind: DataType) -> Any:
    """Return a datum in the form that Arrow accepts."""
    if value is None:
        return None
    if isinstance(kind, StructType):
        return {field.name: _for_arrow(value[field.name], field.dataType) for field in kind.fields}
    if isinstance(kind, ArrayType):
        return [_for_arrow(one, kind.elementType) for one in value]
    if isinstance(kind, MapType):
        return [(name, _for_arrow(one, kind.valueType)) for name, one in value.items()]
    return str(value) if isinstance(kind, StringType) else value
