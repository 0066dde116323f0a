"""The columns, modelled on those of Spark's Kafka source.

| column          | type      | when read                                                | when written                         |
|-----------------|-----------|----------------------------------------------------------|--------------------------------------|
| value           | binary    | the body, see below                                      | required, binary or string, not null |
| queue           | string    | the queue's name                                         | the queue, without the option queue  |
| offset          | long      | number of the message, unique in the cluster, increasing | ignored                              |
| timestamp       | timestamp | when the message became ready, by the cluster's clock    | ignored                              |
| message_id      | string    | id of this delivery, null in batch reads                 | ignored                              |
| content_type    | string    | the content type of `value`; empty if it has none        | stored with `value` as it is         |
| attributes,     | map       | only with ``includeAttributes``: strings to strings, see | null: none; also maps to binary,     |
| attribute_types |           | `attributes`                                             | long, int or double                  |
| delivery        | int       | only with ``includeDelivery``: how often the message was | ignored                              |
|                 |           | delivered, this time included                            |                                      |
| deliveries_left | long      | only with it: how many more there may be after this one  | ignored                              |
| pushed_at       | timestamp | only with it: when it was pushed, by the cluster's clock | ignored                              |
| priority        | int       | only with it                                             | see `delivery`; null: the option     |
| group, label    | string    | only with it; null: none                                 | or binary; null: the option          |
| origin          | struct    | only with it; of a dead letter or an expired message     | ignored                              |
| expires_at      | timestamp | only with it: when it ends; null: never                  | ignored                              |
| ttl             | double    | only with it: seconds from its push to its end           | seconds; null: the option            |
| type            | string    | only with it: ``normal`` or ``compound``                 | ignored                              |
| part, parts     | int       | only with it, in exploded rows: the part's index from 0, | ignored                              |
|                 |           | the number of parts; null for messages that have none    |                                      |
| incarnation     | string    | only with it: the life of the cluster that gave `offset` | ignored                              |
| idempotency_key | binary    | not there: the cluster keeps keys for minutes            | see below; null: none                |
| delay           | double    | not there                                                | seconds; null: the option            |
| due             | timestamp | not there                                                | or Unix seconds; null: none          |

The result of a read can be written unchanged. A column of another name is refused, because it would be lost. So is ``key``, which
Kafka stores with a record and uses to choose its partition.

Every row is stored once however often Spark repeats its task, see `writer`. A column ``idempotency_key`` (binary or string) is
for messages that the application itself may push again, by any client: of all pushes to a queue with one key within 5 minutes
only the first is stored, so rows with equal keys become one message.

Texts may contain any bytes, see `texts`.

`origin` is set for messages that the cluster moved: `queue`, `reason` (``exhausted`` or ``expired``), `at`, and the message's
former `deliveries`, `offset` and `pushed_at`. It is null for all other messages.

`value` is the body as HTTP would deliver it, with one exception: a string or bytes pushed over MessagePack-RPC, which is stored
in MessagePack, is unwrapped, and its content type is null. Other MessagePack values (numbers, lists, maps, nil) stay
MessagePack, with the content type ``application/x-msgpack``. A compound message is a MessagePack list of its parts' contents,
or with ``explode`` one row for each part by the same rules; its rows share everything else.

A value that is written with null as its content type becomes a string in MessagePack, as if it had been pushed over
MessagePack-RPC; with an empty one it is a body without a type. So what was read comes back to the byte, but for compound messages
that were not exploded. Its ``ttl`` begins again when it is written.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from pyspark.sql.types import (
    BinaryType,
    ByteType,
    DataType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from .attributes import ATTRIBUTE_COLUMNS
from .errors import SchemaError

__all__ = ["DELIVERY_COLUMNS", "WRITABLE_COLUMNS", "Extras", "check_read_schema", "check_write_schema", "read_schema"]

_ATTRIBUTES: Final = tuple(StructField(name, MapType(StringType(), StringType())) for name in ATTRIBUTE_COLUMNS)
_COLUMNS: Final = (
    StructField("value", BinaryType()),
    StructField("queue", StringType()),
    StructField("offset", LongType()),
    StructField("timestamp", TimestampType()),
    StructField("message_id", StringType()),
    StructField("content_type", StringType()),
)
_DELIVERY: Final = (
    StructField("delivery", IntegerType()),
    StructField("deliveries_left", LongType()),
    StructField("pushed_at", TimestampType()),
    StructField("priority", IntegerType()),
    StructField("group", StringType()),
    StructField("label", StringType()),
    StructField(
        "origin",
        StructType(
            [
                StructField("queue", StringType()),
                StructField("reason", StringType()),
                StructField("at", TimestampType()),
                StructField("deliveries", IntegerType()),
                StructField("offset", LongType()),
                StructField("pushed_at", TimestampType()),
            ]
        ),
    ),
    StructField("expires_at", TimestampType()),
    StructField("ttl", DoubleType()),
    StructField("type", StringType()),
    StructField("part", IntegerType()),
    StructField("parts", IntegerType()),
    StructField("incarnation", StringType()),
)
DELIVERY_COLUMNS: Final = frozenset(field.name for field in _DELIVERY)
_SECONDS: Final = (DoubleType, FloatType, ByteType, ShortType, IntegerType, LongType)
_WRITABLE: Final[dict[str, tuple[type[DataType] | str, ...]]] = {
    "idempotency_key": (BinaryType, StringType),
    "value": (BinaryType, StringType),
    "queue": (StringType,),
    "content_type": (StringType,),
    "attributes": tuple(f"map<string,{kind}>" for kind in ("string", "binary", "bigint", "int", "double")),
    "attribute_types": ("map<string,string>",),
    "priority": (ByteType, ShortType, IntegerType, LongType),
    "delay": _SECONDS,
    "due": (TimestampType, *_SECONDS),
    "ttl": _SECONDS,
    "group": (StringType, BinaryType),
    "label": (StringType, BinaryType),
}
"""By column: its types, maps by their texts in SQL."""
WRITABLE_COLUMNS: Final = frozenset(_WRITABLE)
"""Columns that a write stores."""


class Extras(NamedTuple):
    """The optional columns that are requested: those of ``includeAttributes`` and of ``includeDelivery``."""

    attributes: bool = False
    delivery: bool = False


def read_schema(extras: Extras) -> StructType:
    """Return the schema of a read for which none was given."""
    return StructType([*_COLUMNS, *(_ATTRIBUTES if extras.attributes else ()), *(_DELIVERY if extras.delivery else ())])


def check_read_schema(schema: StructType, extras: Extras) -> None:
    """Validate a schema that the user gave: any of the columns, in any order.

    Raises:
        SchemaError: a column does not exist or has another type.
    """
    columns = {field.name: field.dataType for field in read_schema(extras).fields}
    problems = []
    for field in schema.fields:
        known = columns.get(field.name)
        if known is None and field.name in ATTRIBUTE_COLUMNS:
            problems.append(f"column {field.name!r} needs the option 'includeAttributes'")
        elif known is None and field.name in DELIVERY_COLUMNS:
            problems.append(f"column {field.name!r} needs the option 'includeDelivery'")
        elif known is None:
            problems.append(f"unknown column {field.name!r}")
        elif known.simpleString() != field.dataType.simpleString():
            problems.append(f"column {field.name!r} is {known.simpleString()}, not {field.dataType.simpleString()}")
    if problems:
        listing = ", ".join(f"{name} {kind.simpleString()}" for name, kind in columns.items())
        raise SchemaError(f"lmq: the given schema cannot be read: {'; '.join(problems)}. The columns are {listing}.")


def check_write_schema(schema: StructType, *, queue_option: bool) -> None:
    """Validate the columns of a data frame to be written.

    Args:
        schema: of the data frame.
        queue_option: whether the option ``queue`` names the queue.

    Raises:
        SchemaError: a column is missing, unknown, or has the wrong type.
    """
    problems = []
    names = schema.fieldNames()
    readable = set(read_schema(Extras(attributes=True, delivery=True)).fieldNames())
    if "value" not in names:
        problems.append("column 'value' (binary or string) is missing")
    if "queue" not in names and not queue_option:
        problems.append("the queue is missing: add a column 'queue' (string) or set the option 'queue'")
    for field in schema.fields:
        allowed = _WRITABLE.get(field.name)
        if field.name == "key":
            problems.append(
                "column 'key' cannot be stored: messages have no key as in Kafka; make it part of 'value', or call it "
                "'idempotency_key' if rows with equal keys are to be stored once only"
            )
        elif field.name not in readable and allowed is None:
            problems.append(f"column {field.name!r} cannot be stored: drop it or make it part of 'value'")
        elif allowed is not None and not any(_is(field.dataType, kind) for kind in allowed):
            kinds = " or ".join(kind if isinstance(kind, str) else kind.typeName() for kind in allowed)
            problems.append(f"column {field.name!r} must be {kinds}, not {field.dataType.simpleString()}")
    if problems:
        raise SchemaError(f"lmq: the data frame cannot be written: {'; '.join(problems)}.")


def _is(kind: DataType, wanted: type[DataType] | str) -> bool:
    return kind.simpleString() == wanted if isinstance(wanted, str) else isinstance(kind, wanted)
