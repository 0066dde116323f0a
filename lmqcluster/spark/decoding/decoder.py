"""Decodes values by a schema into one column; a row that cannot be decoded gets the reason instead.

A decoder is a function that returns a value in the form that Arrow accepts for its type, or raises `BadValueError`.
Other errors, such as a number that the column cannot hold, are found when the column is built, and concern only the
row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NoReturn

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql import DataFrame
from pyspark.sql.types import DataType, StringType, StructField, StructType

from ..reading.rows import arrow_schema

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
"""The column with the reason why a value could not be decoded; null if it was."""
VALUE_BYTES_MAX: Final = 16 * 1024 * 1024
"""Maximum size of a value to decode; in memory it becomes many times larger."""
SCHEMA_BYTES_MAX: Final = 1024 * 1024
NESTING_MAX: Final = 32
FIELDS_MAX: Final = 2_000
_NAME_BYTES_MAX: Final = 255
_PROBLEM_CHARACTERS_MAX: Final = 300
_ARROW_ERRORS: Final = (pa.ArrowException, ArithmeticError, AttributeError, TypeError, ValueError)


class BadSchemaError(ValueError):
    """A schema that cannot become a column. The text says where and why."""


class BadValueError(ValueError):
    """A value that does not match its schema. The text says where and why, and contains nothing of the value."""


@dataclass(frozen=True)
class Decoder:
    """A decoder of values.

    Attributes:
        kind: the type of the column.
        decode: returns a value in the form that Arrow accepts, or raises `BadValueError`.
    """

    kind: DataType
    decode: Callable[[bytes], Any]


def refuse(place: str, reason: str) -> NoReturn:
    """Raise `BadSchemaError` about a part of a schema."""
    raise BadSchemaError(f"{place}: {reason}")


def field_name(name: object, taken: set[str], place: str) -> str:
    """Return the name of a field, and add it to `taken`.

    Raises:
        BadSchemaError: it is not a valid column name, or it is taken.
    """
    if not isinstance(name, str) or not 0 < len(name.encode("utf-8", "surrogatepass")) <= _NAME_BYTES_MAX:
        refuse(place, f"the name of a field must have 1 to {_NAME_BYTES_MAX} bytes")
    if not name.isprintable() or any(character in name for character in ",;{}()\n\t="):
        refuse(place, f"{name!a} cannot be the name of a column")
    if name.casefold() in taken:
        refuse(place, f"{name!a} appears twice: Spark's names are not case-sensitive")
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
    """Decode values into an array, with null and a problem for each value that cannot be decoded."""
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
        # One of them does not fit; find it.
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
    """Return a reason as short, printable ASCII text."""
    shown = reason.encode("ascii", "backslashreplace").decode()
    return "".join(character if character.isprintable() else "?" for character in shown)[:_PROBLEM_CHARACTERS_MAX]
