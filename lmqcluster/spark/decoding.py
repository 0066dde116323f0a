"""Decoding values by a schema into one column, each row either whole or with the reason why it cannot be.

A decoder is a function of a value that returns what Arrow takes for its type, or raises `BadValueError`. Whatever else is wrong
with a value, such as a number that the column cannot hold, is found when the column is made, and is the row's problem alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NoReturn

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql import DataFrame
from pyspark.sql.types import DataType, StringType, StructField, StructType

from .rows import arrow_schema

__all__ = [
    "DECODED",
    "FIELDS_MAX",
    "NESTING_MAX",
    "PROBLEM",
    "SCHEMA_BYTES_MAX",
    "VALUE_BYTES_MAX",
    "BadSchemaError",
    "BadValueError",
    "Decoder",
    "decode_column",
    "decoded",
    "field_name",
    "refuse",
]

DECODED: Final = "decoded"
"""The column that `decoded` adds."""
PROBLEM: Final = "problem"
"""The column that says why a value could not be decoded; null where it was."""
VALUE_BYTES_MAX: Final = 16 * 1024 * 1024
"""Largest value that is decoded: what becomes of it in memory is many times larger."""
SCHEMA_BYTES_MAX: Final = 1024 * 1024
NESTING_MAX: Final = 32
FIELDS_MAX: Final = 2_000
_NAME_BYTES_MAX: Final = 255
_PROBLEM_CHARACTERS_MAX: Final = 300
_ARROW_ERRORS: Final = (pa.ArrowException, ArithmeticError, AttributeError, TypeError, ValueError)


class BadSchemaError(ValueError):
    """A schema that cannot become a column. The text says where and why."""


class BadValueError(ValueError):
    """A value that is not as its schema wants it. The text says where and why, and nothing of the value."""


@dataclass(frozen=True)
class Decoder:
    """How to decode values.

    Attributes:
        kind: the type of the column.
        decode: returns what Arrow takes for it, or raises `BadValueError`.
    """

    kind: DataType
    decode: Callable[[bytes], Any]


def refuse(place: str, reason: str) -> NoReturn:
    """Raise `BadSchemaError` about a part of a schema."""
    raise BadSchemaError(f"{place}: {reason}")


def field_name(name: object, taken: set[str], place: str) -> str:
    """Return the name of a field, noted in `taken`.

    Raises:
        BadSchemaError: no column can have this name, or another one has it already.
    """
    if not isinstance(name, str) or not 0 < len(name.encode("utf-8", "surrogatepass")) <= _NAME_BYTES_MAX:
        refuse(place, f"the name of a field must have 1 to {_NAME_BYTES_MAX} bytes")
    if not name.isprintable() or any(character in name for character in ",;{}()\n\t="):
        refuse(place, f"{name!a} cannot be the name of a column")
    if name.casefold() in taken:
        refuse(place, f"{name!a} is there twice: Spark does not tell names apart by case")
    taken.add(name.casefold())
    return name


def decoded(rows: DataFrame, make: Callable[[], Decoder]) -> DataFrame:
    """Return the rows with the columns `DECODED` and `PROBLEM`.

    Args:
        rows: with a column ``value``.
        make: returns the decoder. It is called here and in each task.

    Raises:
        BadSchemaError: the schema cannot become a column.
    """
    kind = make().kind
    more = [StructField(DECODED, kind), StructField(PROBLEM, StringType())]
    return rows.mapInArrow(_mapping(make), StructType([*rows.schema.fields, *more]))


def _mapping(make: Callable[[], Decoder]) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def decode_all(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        decoder = make()
        for batch in batches:
            column, problems = decode_column(batch.column("value").to_pylist(), decoder)
            arrays = [*batch.columns, column, pa.array(problems, pa.string())]
            yield pa.RecordBatch.from_arrays(arrays, names=[*batch.schema.names, DECODED, PROBLEM])

    return decode_all


def decode_column(values: Sequence[bytes | None], decoder: Decoder) -> tuple[Any, list[str | None]]:
    """Decode values into an array, with null and a problem for each that cannot be."""
    kind = arrow_schema(StructType([StructField(DECODED, decoder.kind)])).field(0).type
    results: list[Any] = []
    problems: list[str | None] = []
    for value in values:
        result, problem = _decoded_value(value, decoder)
        results.append(result)
        problems.append(problem)
    try:
        return pa.array(results, type=kind), problems
    except _ARROW_ERRORS:
        # One of them does not fit; which one is looked for only now.
        for index, result in enumerate(results):
            try:
                pa.array([result], type=kind)
            except _ARROW_ERRORS as exc:
                results[index], problems[index] = None, _text(f"does not fit its column: {type(exc).__name__}")
    return pa.array(results, type=kind), problems


def _decoded_value(value: bytes | None, decoder: Decoder) -> tuple[Any, str | None]:
    if value is None or len(value) > VALUE_BYTES_MAX:
        return None, f"a value of more than {VALUE_BYTES_MAX} bytes is not decoded"
    try:
        return decoder.decode(value), None
    except BadValueError as exc:
        return None, _text(str(exc))
    except RecursionError:
        return None, "nested too deeply"


def _text(reason: str) -> str:
    """A reason as text that any header can have."""
    shown = reason.encode("ascii", "backslashreplace").decode()
    return "".join(character if character.isprintable() else "?" for character in shown)[:_PROBLEM_CHARACTERS_MAX]
