"""Builds a decoder of JSON from a JSON Schema.

Every keyword is either checked for each value or refused when the schema is parsed; only annotations are ignored. A place
without a type in the schema becomes JSON as text. Checks are linear in the size of the value: patterns are RE2, and keywords
that compare elements with each other are refused.

| schema                                       | column                          |
|----------------------------------------------|---------------------------------|
| object with properties                       | struct, see below               |
| object with ``additionalProperties: SCHEMA`` | map                             |
| array with items                             | array                           |
| string; with the format date-time, date      | string; timestamp, date         |
| integer, number, boolean                     | long (64 bits), double, boolean |
| anything else                                | string: the JSON text           |

Properties that the schema does not name are dropped; with ``additionalProperties: false`` they are an error.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from typing import Any, Final, NamedTuple, NoReturn

import re2
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DateType,
    DoubleType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from .decoder import FIELDS_MAX, NESTING_MAX, BadValueError, Decoder, field_name, refuse

__all__ = ["json_decoder"]

_ANNOTATIONS: Final = frozenset(
    (
        *("$schema", "$id", "$comment", "$defs", "definitions", "title", "description", "default", "examples"),
        *("deprecated", "readOnly", "writeOnly", "format", "contentMediaType"),
    )
)
_TYPES: Final = ("object", "array", "string", "integer", "number", "boolean", "null")
_OF_ANY: Final = frozenset(("type", "enum", "const", "anyOf", "oneOf", "$ref"))
_OF_TYPE: Final[dict[str, frozenset[str]]] = {
    "object": frozenset(("properties", "required", "additionalProperties")),
    "array": frozenset(("items", "minItems", "maxItems")),
    "string": frozenset(("minLength", "maxLength", "pattern")),
    "integer": frozenset(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")),
    "number": frozenset(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")),
}
_ROOTS: Final = ("#/$defs/", "#/definitions/")
_PATTERN_BYTES_MAX: Final = 4096

_Convert = Callable[[Any, str], Any]
"""Converts a JSON value at a place to the form that Arrow accepts; raises `BadValueError`."""


class _Node(NamedTuple):
    kind: DataType
    convert: _Convert


def json_decoder(text: str) -> Decoder:
    """Return the decoder of a schema.

    Raises:
        BadSchemaError: it is not a JSON Schema, or cannot become a column.
    """
    try:
        schema = json.loads(text)
    except (ValueError, RecursionError) as exc:
        refuse("the schema", f"is not JSON: {exc}")
    node = _Compiler(schema).node(schema, "$", 0)

    def decode(value: bytes) -> Any:
        return node.convert(_parse(value), "$")

    return Decoder(node.kind, decode)


def _parse(value: bytes) -> Any:
    try:
        return json.loads(value.decode(), parse_constant=_no_number, object_pairs_hook=_unique)
    except UnicodeDecodeError as exc:
        raise BadValueError(f"is not UTF-8 at byte {exc.start}") from exc
    except json.JSONDecodeError as exc:
        raise BadValueError(f"is not JSON: {exc.msg} at character {exc.pos}") from exc
    except BadValueError:
        raise
    except ValueError as exc:
        # Python limits the digits of integers.
        raise BadValueError("has a number with too many digits") from exc


def _no_number(name: str) -> NoReturn:
    raise BadValueError(f"is not JSON: {name} is not a number")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise BadValueError("has an object with a duplicate property")
    return found


def _bad(place: str, reason: str) -> NoReturn:
    raise BadValueError(f"{place}: {reason}")


class _Compiler:
    """Builds nodes from the parts of one schema."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self._fields = 0

    def node(self, schema: Any, place: str, depth: int) -> _Node:
        """Return the node of a part of the schema."""
        if depth > NESTING_MAX:
            refuse(place, f"the schema is nested more than {NESTING_MAX} times, or refers to itself")
        self._fields += 1
        if self._fields > FIELDS_MAX:
            refuse(place, f"the schema has more than {FIELDS_MAX} parts")
        if schema is True:
            return _Node(StringType(), _json_text)
        if not isinstance(schema, dict):
            refuse(place, "a schema must be an object or true")
        if "$ref" in schema:
            return self._referred(schema, place, depth)
        schema = _without_null(schema, place)
        types = _types(schema, place)
        _check_keywords(schema, types, place)
        wanted = [one for one in types if one != "null"]
        node = self._of_type(wanted[0], schema, place, depth) if len(wanted) == 1 else _open(wanted, schema, place)
        return _restrict(_nullable(node) if "null" in types else node, schema, place)

    def _referred(self, schema: Mapping[str, Any], place: str, depth: int) -> _Node:
        _check_keywords(schema, (), place)
        if {"type", "enum", "const", "anyOf", "oneOf"} & schema.keys():
            refuse(place, "only annotations may accompany $ref")
        name = schema["$ref"]
        root = next((one for one in _ROOTS if isinstance(name, str) and name.startswith(one)), None)
        definitions = None if root is None else self._root.get(root.split("/")[1])
        wanted = None if root is None else name[len(root) :]
        if not isinstance(definitions, dict) or wanted not in definitions:
            refuse(place, f"$ref {name!a:.100} is not {_ROOTS[0]}NAME of this schema")
        return self.node(definitions[wanted], place, depth + 1)

    def _of_type(self, kind: str, schema: Mapping[str, Any], place: str, depth: int) -> _Node:
        if kind == "object":
            return self._object(schema, place, depth)
        if kind == "array":
            return self._array(schema, place, depth)
        if kind == "string":
            return _string(schema, place)
        if kind in ("integer", "number"):
            return _number(kind, schema, place)
        return _Node(BooleanType(), _boolean)

    def _object(self, schema: Mapping[str, Any], place: str, depth: int) -> _Node:
        properties, required = schema.get("properties", {}), schema.get("required", [])
        more = schema.get("additionalProperties", True)
        if not isinstance(properties, dict):
            refuse(place, "properties must be an object")
        if not isinstance(required, list) or not all(isinstance(name, str) for name in required):
            refuse(place, "required must be a list of names")
        if not properties:
            return self._map(more, frozenset(required), place, depth)
        if isinstance(more, dict):
            refuse(place, "properties and a schema in additionalProperties cannot both become columns")
        taken: set[str] = set()
        nodes: dict[str, _Node] = {}
        for name, one in properties.items():
            inner = f"{place}.{name}"
            nodes[field_name(name, taken, inner)] = self.node(one, inner, depth + 1)
        kind = StructType([StructField(name, node.kind) for name, node in nodes.items()])
        return _Node(kind, _struct({name: node.convert for name, node in nodes.items()}, frozenset(required), more))

    def _map(self, more: Any, required: frozenset[str], place: str, depth: int) -> _Node:
        if more is False:
            refuse(place, "an object without properties has no columns")
        node = self.node(more, f"{place}.*", depth + 1)

        def convert(value: Any, where: str) -> Any:
            if not isinstance(value, dict):
                _bad(where, f"is {_kind_of(value)}, not an object")
            for name in required - value.keys():
                _bad(where, f"has no property {name!a:.100}")
            return [(_clean(name, where), node.convert(one, f"{where}.*")) for name, one in value.items()]

        return _Node(MapType(StringType(), node.kind), convert)

    def _array(self, schema: Mapping[str, Any], place: str, depth: int) -> _Node:
        least, most = (_count(schema, name, place) for name in ("minItems", "maxItems"))
        node = self.node(schema.get("items", True), f"{place}[]", depth + 1)

        def convert(value: Any, where: str) -> Any:
            if not isinstance(value, list):
                _bad(where, f"is {_kind_of(value)}, not an array")
            if (least is not None and len(value) < least) or (most is not None and len(value) > most):
                _bad(where, f"has {len(value)} elements")
            return [node.convert(one, f"{where}[{index}]") for index, one in enumerate(value)]

        return _Node(ArrayType(node.kind), convert)


def _without_null(schema: dict[str, Any], place: str) -> dict[str, Any]:
    """Rewrite a schema that allows null by ``anyOf`` or ``oneOf`` into one with both types in ``type``."""
    for keyword in ("anyOf", "oneOf"):
        if keyword not in schema:
            continue
        choices = schema[keyword]
        others = [one for one in choices if one != {"type": "null"}] if isinstance(choices, list) else []
        if len(others) != 1 or len(others) == len(choices) or not isinstance(others[0], dict):
            refuse(place, f"{keyword} is supported for a schema and null only")
        if not isinstance(others[0].get("type"), str) or _OF_ANY & schema.keys() - {keyword}:
            refuse(
                place, f"{keyword} needs a schema with a type beside null, and nothing but annotations beside itself"
            )
        rest = {name: value for name, value in schema.items() if name != keyword}
        return {**rest, **others[0], "type": [others[0]["type"], "null"]}
    return schema


def _types(schema: Mapping[str, Any], place: str) -> tuple[str, ...]:
    given = schema.get("type", [])
    types = [given] if isinstance(given, str) else given
    if not isinstance(types, list) or not all(one in _TYPES for one in types):
        refuse(place, f"type must be of {', '.join(_TYPES)}")
    return tuple(dict.fromkeys(types))


def _check_keywords(schema: Mapping[str, Any], types: tuple[str, ...], place: str) -> None:
    """Refuse keywords that would not be checked."""
    known = _ANNOTATIONS | _OF_ANY
    if len([one for one in types if one != "null"]) == 1:
        known = known.union(*(_OF_TYPE.get(one, frozenset()) for one in types))
    if unknown := sorted(schema.keys() - known):
        refuse(place, f"{unknown[0]!a:.100} is not supported, or needs a type beside it")


def _open(types: list[str], schema: Mapping[str, Any], place: str) -> _Node:
    """Return a node for values of several types."""
    if not types and "type" in schema:
        refuse(place, "a value that is always null has no column")
    wanted = frozenset(types)

    def convert(value: Any, where: str) -> Any:
        if wanted and not any(_is_of(value, one) for one in wanted):
            _bad(where, f"is {_kind_of(value)}, not one of {', '.join(types)}")
        return _json_text(value, where)

    return _Node(StringType(), convert)


def _restrict(node: _Node, schema: Mapping[str, Any], place: str) -> _Node:
    """Return a node restricted to the values that ``enum`` and ``const`` allow."""
    if not {"enum", "const"} & schema.keys():
        return node
    choices = schema.get("enum", [schema.get("const")])
    if not isinstance(choices, list) or not choices:
        refuse(place, "enum must be a list of values")
    allowed = {_canonical(one) for one in choices}
    if "const" in schema:
        allowed &= {_canonical(schema["const"])}

    def convert(value: Any, where: str) -> Any:
        if _canonical(value) not in allowed:
            _bad(where, "is not one of the allowed values")
        return node.convert(value, where)

    return _Node(node.kind, convert)


def _canonical(value: Any) -> str:
    # In JSON Schema, 1 and 1.0 are equal, and 1 and true are not.
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return json.dumps(value, sort_keys=True)


def _nullable(node: _Node) -> _Node:
    return _Node(node.kind, lambda value, where: None if value is None else node.convert(value, where))


def _struct(converts: dict[str, _Convert], required: frozenset[str], more: object) -> _Convert:
    def convert(value: Any, where: str) -> Any:
        if not isinstance(value, dict):
            _bad(where, f"is {_kind_of(value)}, not an object")
        for name in required - value.keys():
            _bad(where, f"has no property {name!a:.100}")
        if more is False:
            for name in value.keys() - converts.keys():
                _bad(where, f"has an unknown property, {name!a:.100}")
        return {name: convert(value[name], f"{where}.{name}") for name, convert in converts.items() if name in value}

    return convert


def _string(schema: Mapping[str, Any], place: str) -> _Node:
    least, most = (_count(schema, name, place) for name in ("minLength", "maxLength"))
    pattern = _pattern(schema, place)
    form = {"date-time": _moment, "date": _day}.get(str(schema.get("format")))
    kind: DataType = {"date-time": TimestampType(), "date": DateType()}.get(str(schema.get("format")), StringType())

    def convert(value: Any, where: str) -> Any:
        if not isinstance(value, str):
            _bad(where, f"is {_kind_of(value)}, not a string")
        text = _clean(value, where)
        if (least is not None and len(text) < least) or (most is not None and len(text) > most):
            _bad(where, f"has {len(text)} characters")
        if pattern is not None and pattern.search(text) is None:
            _bad(where, "does not match its pattern")
        return text if form is None else form(text, where)

    return _Node(kind, convert)


def _pattern(schema: Mapping[str, Any], place: str) -> Any:
    if "pattern" not in schema:
        return None
    pattern = schema["pattern"]
    if not isinstance(pattern, str) or len(pattern.encode("utf-8", "replace")) > _PATTERN_BYTES_MAX:
        refuse(place, f"pattern must be a string of at most {_PATTERN_BYTES_MAX} bytes")
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error as exc:
        refuse(place, f"pattern is not RE2: {exc}")


def _number(kind: str, schema: Mapping[str, Any], place: str) -> _Node:
    bounds = {name: schema[name] for name in _OF_TYPE["number"] if name in schema}
    for name, bound in bounds.items():
        if not _is_of(bound, "number"):
            refuse(place, f"{name} must be a number")

    def convert(value: Any, where: str) -> Any:
        if not _is_of(value, kind):
            _bad(where, f"is {_kind_of(value)}, not {'an integer' if kind == 'integer' else 'a number'}")
        if not _within(value, bounds):
            _bad(where, "is out of its bounds")
        if kind == "integer":
            if not -(1 << 63) <= value < 1 << 63:
                _bad(where, "does not fit 64 bits")
            return int(value)
        try:
            return float(value)
        except OverflowError:
            _bad(where, "does not fit a double")

    return _Node(LongType() if kind == "integer" else DoubleType(), convert)


def _within(value: float, bounds: Mapping[str, float]) -> bool:
    return (
        ("minimum" not in bounds or value >= bounds["minimum"])
        and ("maximum" not in bounds or value <= bounds["maximum"])
        and ("exclusiveMinimum" not in bounds or value > bounds["exclusiveMinimum"])
        and ("exclusiveMaximum" not in bounds or value < bounds["exclusiveMaximum"])
    )


def _boolean(value: Any, where: str) -> bool:
    if not isinstance(value, bool):
        _bad(where, f"is {_kind_of(value)}, not true or false")
    return value


def _moment(text: str, where: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None or "T" not in text.upper():
            _bad(where, "is not a date-time with an offset")
        return moment.astimezone(UTC)
    except (ValueError, OverflowError) as exc:
        if isinstance(exc, BadValueError):
            raise
        raise BadValueError(f"{where}: is not a date-time") from exc


def _day(text: str, where: str) -> date:
    try:
        if len(text) == len("2026-11-25"):
            return date.fromisoformat(text)
    except ValueError:
        pass
    _bad(where, "is not a date")


def _count(schema: Mapping[str, Any], name: str, place: str) -> int | None:
    value = schema.get(name)
    if value is not None and (type(value) is not int or value < 0):
        refuse(place, f"{name} must be a whole number")
    return value


def _json_text(value: Any, where: str) -> str:
    return _clean(json.dumps(value, ensure_ascii=False, separators=(",", ":")), where)


def _clean(text: str, where: str) -> str:
    """Return a text that is valid Unicode, which JSON does not guarantee."""
    try:
        text.encode()
    except UnicodeEncodeError:
        _bad(where, "has half of a surrogate pair")
    return text


def _is_of(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    if isinstance(value, float):
        return math.isfinite(value) and (kind == "number" or (kind == "integer" and value.is_integer()))
    wanted = {
        "object": dict, "array": list, "string": str, "integer": int, "number": int, "null": type(None), "boolean": bool
    }  # fmt: skip
    return isinstance(value, wanted[kind])


def _kind_of(value: Any) -> str:
    """Return the kind of a value, without the value."""
    if value is None:
        return "null"
    kinds = {
        bool: "a boolean",
        dict: "an object",
        list: "an array",
        str: "a string",
        int: "an integer",
        float: "a number",
    }
    return kinds[type(value)]
