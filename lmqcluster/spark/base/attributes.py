"""Attributes of messages as two columns of Spark: ``attributes`` with texts, ``attribute_types`` with their types.

A string is itself, a number is its decimal text, and a binary value is its text in Base64. ``attribute_types`` names the
values that are not strings: ``integer``, ``double`` or ``binary``. A write accepts other maps in ``attributes`` too, whose
values have the type of the map.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

import pyarrow as pa  # type: ignore[import-untyped]

from lmqcluster import LmqError
from lmqcluster.wire.attributes import Attributes, Value, pack_attributes, value_text

from .errors import SchemaError

__all__ = ["ATTRIBUTE_COLUMNS", "attribute_entries", "attributes_problem", "column_attributes"]

ATTRIBUTE_COLUMNS: Final = ("attributes", "attribute_types")
_TYPES: Final[dict[type[Value], str]] = {int: "integer", float: "double", bytes: "binary"}
_FORMS: Final = {"integer": "an integer", "double": "a decimal number", "binary": "Base64"}
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,40}")
_DOUBLE: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_SHOWN_CHARACTERS: Final = 80
_Entries = list[tuple[str, str]]


class _BadAttributeError(ValueError):
    """A message cannot have the attributes of a row."""


def attribute_entries(attributes: Attributes) -> tuple[_Entries, _Entries]:
    """Return the entries of a message's attributes in the two columns."""
    texts = [(name, value_text(value)) for name, value in attributes.items()]
    types = [(name, _TYPES[type(value)]) for name, value in attributes.items() if type(value) is not str]
    return texts, types


def column_attributes(batch: pa.RecordBatch) -> list[Attributes | None]:
    """Return the attributes of each row of a batch that has the column ``attributes``; None for none.

    Raises:
        SchemaError: a row has attributes that a message cannot have, see `attributes_problem`.
    """
    values, types = (
        batch.column(name).to_pylist() if name in batch.schema.names else [None] * batch.num_rows
        for name in ATTRIBUTE_COLUMNS
    )
    try:
        return [
            _attributes(dict(row), dict(row_types or ())) if row else None
            for row, row_types in zip(values, types, strict=True)
        ]
    except _BadAttributeError as exc:
        raise SchemaError(f"lmq: a row cannot be written: {exc}") from exc


def attributes_problem(values: Mapping[str, Any] | None, types: Mapping[str, str | None] | None) -> str | None:
    """Return why no message can have the attributes of a row: a text is not of its type, a type is unknown, a name is
    too long, a number is too large, or there are too many. None if one can.
    """
    try:
        _attributes(values or {}, types or {})
    except _BadAttributeError as exc:
        return str(exc)
    return None


def _attributes(values: Mapping[str, Any], types: Mapping[str, str | None]) -> Attributes | None:
    attributes = {
        name: _value(name, value, types.get(name) or "string") for name, value in values.items() if value is not None
    }
    try:
        pack_attributes(attributes)
    except LmqError as exc:
        raise _BadAttributeError(exc.message) from exc
    return attributes or None


def _value(name: str, value: Any, kind: str) -> Value:
    """Return a value of a map, whose texts are of the type `kind`."""
    if not isinstance(value, str):
        # Spark passes binary values to functions as bytearrays.
        number_or_bytes: Value = bytes(value) if isinstance(value, bytearray) else value
        return number_or_bytes
    if kind == "string":
        return value
    if kind == "integer" and _INTEGER.fullmatch(value):
        return int(value)
    if kind == "double" and _DOUBLE.fullmatch(value):
        return float(value)
    if kind == "binary":
        with suppress(ValueError):
            return b64decode(value, validate=True)
    raise _BadAttributeError(f"the attribute {name[:_SHOWN_CHARACTERS]!r} {_problem(value[:_SHOWN_CHARACTERS], kind)}")


def _problem(text: str, kind: str) -> str:
    if kind not in _FORMS:
        return f"has the type {kind[:_SHOWN_CHARACTERS]!r}, which is none of string, {', '.join(_FORMS)}"
    return f"is not {_FORMS[kind]}: {text!r}"
