"""The options of the data source, after those of Spark's Kafka source.

Names are case-insensitive, values are texts. Everything is checked when a read or write is planned: an unknown ``lmq.`` option,
an option that the operation does not use, and a value out of range are refused by an `OptionError` that names the option.
`OPTIONS` is the reference.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, Literal, NamedTuple

from lmqcluster.client.addresses import parse_addresses
from lmqcluster.wire.limits import IDEMPOTENCY_WINDOW_S, NAME_BYTES_MAX, PATTERN_BYTES_MAX, PUSH_COUNT_MAX

from .errors import OptionError

__all__ = ["OPTIONS", "BatchRead", "Connection", "Operation", "Option", "Selection", "StreamRead", "Write"]

BATCH_MESSAGES_MAX: Final = 100_000
"""Most messages under one batch lease."""
LEASE_S_MAX: Final = 30 * 86_400
_TIMEOUT_S_MAX: Final = IDEMPOTENCY_WINDOW_S // 2
_PARTITIONS_MAX: Final = 10_000
_PUSH_BYTES_MAX: Final = 8 * 1024 * 1024
_READ_ALL: Final = "a queue is always read from its head, and what was read is remembered by the cluster"


class Operation(Enum):
    """What an option can be for; the value is how messages call it."""

    BATCH_READ = "batch reads"
    STREAM_READ = "streaming reads"
    WRITE = "writes"


_READS: Final = frozenset({Operation.BATCH_READ, Operation.STREAM_READ})
_ALL: Final = frozenset(Operation)
_STREAM: Final = frozenset({Operation.STREAM_READ})
_BATCH: Final = frozenset({Operation.BATCH_READ})
_WRITE: Final = frozenset({Operation.WRITE})


class Option(NamedTuple):
    """One line of the reference.

    Attributes:
        name: as it is documented; case does not matter.
        default: as text, empty if there is none.
        used_by: the operations it is for.
        meaning: one sentence or two.
    """

    name: str
    default: str
    used_by: frozenset[Operation]
    meaning: str


OPTIONS: Final[tuple[Option, ...]] = (
    Option("lmq.servers", "", _ALL, "Required. MessagePack-RPC addresses of the cluster's nodes, host:port,host:port."),
    Option("servers", "", _ALL, "Another name of lmq.servers."),
    Option("lmq.timeout", "60", _ALL, "Seconds a call may take over all attempts and nodes before the task fails."),
    Option("lmq.connectTimeout", "2", _ALL, "Seconds a node may take to accept a connection."),
    Option("lmq.token", "", _ALL, "Token to show to the nodes; default the driver's environment variable LMQ_TOKEN."),
    Option(
        "lmq.tls.ca",
        "",
        _ALL,
        "File, on every machine, with the certificate of the nodes' authority: use TLS. Default LMQ_CA_FILE.",
    ),
    Option("subscribe", "", _READS, "The queue to read. Exactly one of subscribe and subscribePattern is required."),
    Option("subscribePattern", "", _READS, "Regular expression (RE2), searched in the names of the queues to read."),
    Option("includeHeaders", "false", _READS, "Adds the column headers."),
    Option("explode", "false", _READS, "A compound message becomes one row for each part instead of one row."),
    Option("minPartitions", "1", _READS, "Least tasks to read with; there are more where there is much to read."),
    Option("failOnDataLoss", "true", _READS, "Whether an expired lease fails the query; otherwise it is logged."),
    Option("lmq.lease", "86400", _READS, "Seconds messages stay reserved without a sign of life; for drain 3600."),
    Option("lmq.subscription", "", _STREAM, "Name of the subscription; default a random one, kept in the checkpoint."),
    Option("maxOffsetsPerTrigger", "100000", _STREAM, "Most messages in one micro-batch, at most 100000."),
    Option("mode", "peek", _BATCH, "peek looks at messages and leaves them; drain takes them out."),
    Option("queue", "", _WRITE, "The queue to write to; overrides the column queue."),
    Option("lmq.batchSize", "4000", _WRITE, "Most messages in one request, at most 10000."),
    Option("lmq.batchBytes", "1048576", _WRITE, "Bytes after which a request is sent, at most 8388608."),
    Option(
        "lmq.writeId", "", _WRITE, "Names the write, so that a repetition under the same name stores nothing twice."
    ),
)

_BY_KEY: Final = {option.name.lower(): option for option in OPTIONS}
_REFUSED: Final = {
    "assign": "is Kafka's: name the queue with 'subscribe'",
    "startingoffsets": f"is Kafka's: {_READ_ALL}",
    "endingoffsets": f"is Kafka's: {_READ_ALL}",
    "startingtimestamp": f"is Kafka's: {_READ_ALL}",
    "endingtimestamp": f"is Kafka's: {_READ_ALL}",
    "startingoffsetsbytimestamp": f"is Kafka's: {_READ_ALL}",
    "endingoffsetsbytimestamp": f"is Kafka's: {_READ_ALL}",
    "minoffsetspertrigger": "is not supported: use a processing-time trigger to let messages gather",
    "maxtriggerdelay": "is not supported: use a processing-time trigger to let messages gather",
    "topic": "is Kafka's: name the queue with 'queue'",
}
"""Options that users of Kafka's source may bring along, and what to do instead."""


@dataclass(frozen=True)
class Connection:
    """How to reach the cluster. Times are seconds."""

    servers: str
    timeout_s: float
    connect_timeout_s: float
    token: str | None = field(default=None, repr=False)
    tls_ca: str | None = None


@dataclass(frozen=True)
class Selection:
    """The queues to read: one by name, or all whose names match."""

    queue: str | None
    pattern: str | None

    def arguments(self) -> dict[str, Any]:
        """As keyword arguments of the client's calls."""
        return {"queue": self.queue} if self.queue is not None else {"pattern": self.pattern}

    def __str__(self) -> str:
        return f"queue {self.queue!r}" if self.queue is not None else f"queues matching {self.pattern!r}"


@dataclass(frozen=True)
class _Read:
    connection: Connection
    selection: Selection
    include_headers: bool
    explode: bool
    partitions_min: int
    fail_on_data_loss: bool
    lease_s: float


@dataclass(frozen=True)
class StreamRead(_Read):
    """Options of a streaming read; `subscription` is None for one with a random name."""

    subscription: str | None
    messages_max: int

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> StreamRead:
        """Check the options of a query.

        Raises:
            OptionError: one is missing, unknown, out of range, or not for streaming reads.
        """
        given = _Given(options, Operation.STREAM_READ)
        return cls(
            **given.read(lease_s=86_400),
            subscription=given.name("lmq.subscription"),
            messages_max=given.integer("maxOffsetsPerTrigger", 1, BATCH_MESSAGES_MAX, default=BATCH_MESSAGES_MAX),
        )


@dataclass(frozen=True)
class BatchRead(_Read):
    """Options of a batch read."""

    mode: Literal["peek", "drain"]

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> BatchRead:
        """Check the options of a query.

        Raises:
            OptionError: one is missing, unknown, out of range, or not for batch reads.
        """
        given = _Given(options, Operation.BATCH_READ)
        mode = (given.text("mode") or "peek").lower()
        if mode not in {"peek", "drain"}:
            raise OptionError("mode", f"must be peek or drain, not {mode!r}")
        read = cls(**given.read(lease_s=3600), mode="drain" if mode == "drain" else "peek")
        if read.mode == "peek" and read.selection.queue is None:
            raise OptionError("subscribePattern", "is for streaming reads and mode=drain: name one queue to peek into")
        return read


@dataclass(frozen=True)
class Write:
    """Options of batch and streaming writes. `push_bytes` is a size at which to send, not a bound."""

    connection: Connection
    queue: str | None
    push_count: int
    push_bytes: int
    write_id: str | None

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> Write:
        """Check the options of a write.

        Raises:
            OptionError: one is missing, unknown, out of range, or not for writes.
        """
        given = _Given(options, Operation.WRITE)
        return cls(
            connection=given.connection(),
            queue=given.name("queue"),
            push_count=given.integer("lmq.batchSize", 1, PUSH_COUNT_MAX, default=4000),
            push_bytes=given.integer("lmq.batchBytes", 1, _PUSH_BYTES_MAX, default=1024 * 1024),
            write_id=given.text("lmq.writeId"),
        )


def check_common(options: Mapping[str, str]) -> bool:
    """Check what batch and streaming reads have in common, before Spark says which it will be.

    Returns:
        Whether the column ``headers`` is wanted.

    Raises:
        OptionError: one is missing, unknown or out of range.
    """
    include_headers: bool = _Given(options, None).read(lease_s=1)["include_headers"]
    return include_headers


class _Given:
    """The options as they were given, and typed access to them."""

    def __init__(self, options: Mapping[str, str], operation: Operation | None) -> None:
        self._values = {name.lower(): value for name, value in options.items()}
        for key in self._values:
            _check_name(key, operation)

    def text(self, name: str) -> str | None:
        value = self._values.get(name.lower())
        if value is None:
            return None
        if not value.strip():
            raise OptionError(name, "is empty")
        return value.strip()

    def name(self, name: str, bytes_max: int = NAME_BYTES_MAX) -> str | None:
        value = self.text(name)
        if value is not None and len(value.encode()) > bytes_max:
            raise OptionError(name, f"must have at most {bytes_max} bytes, not {len(value.encode())}")
        return value

    def integer(self, name: str, least: int, most: int, *, default: int) -> int:
        value = self.text(name)
        if value is None:
            return default
        try:
            number = int(value)
        except ValueError:
            number = least - 1
        if not least <= number <= most:
            raise OptionError(name, f"must be a whole number from {least} to {most}, not {value!r}")
        return number

    def seconds(self, name: str, most: int, *, default: float) -> float:
        value = self.text(name)
        if value is None:
            return default
        try:
            number = float(value)
        except ValueError:
            number = 0.0
        if not 0 < number <= most:
            raise OptionError(name, f"must be a number of seconds above 0 and at most {most}, not {value!r}")
        return number

    def boolean(self, name: str, *, default: bool) -> bool:
        value = self.text(name)
        if value is None:
            return default
        if value.lower() not in {"true", "false"}:
            raise OptionError(name, f"must be true or false, not {value!r}")
        return value.lower() == "true"

    def connection(self) -> Connection:
        return Connection(
            servers=self._servers(),
            timeout_s=self.seconds("lmq.timeout", _TIMEOUT_S_MAX, default=60),
            connect_timeout_s=self.seconds("lmq.connectTimeout", _TIMEOUT_S_MAX, default=2),
            token=self.text("lmq.token") or os.environ.get("LMQ_TOKEN") or None,
            tls_ca=self.text("lmq.tls.ca") or os.environ.get("LMQ_CA_FILE") or None,
        )

    def read(self, *, lease_s: float) -> dict[str, Any]:
        return {
            "connection": self.connection(),
            "selection": self._selection(),
            "include_headers": self.boolean("includeHeaders", default=False),
            "explode": self.boolean("explode", default=False),
            "partitions_min": self.integer("minPartitions", 1, _PARTITIONS_MAX, default=1),
            "fail_on_data_loss": self.boolean("failOnDataLoss", default=True),
            "lease_s": self.seconds("lmq.lease", LEASE_S_MAX, default=lease_s),
        }

    def _servers(self) -> str:
        servers, alias = self.text("lmq.servers"), self.text("servers")
        if servers is not None and alias is not None:
            raise OptionError("servers", "is another name of 'lmq.servers': give only one of them")
        value = servers or alias
        if value is None:
            raise OptionError("lmq.servers", "is required: the nodes' RPC addresses, such as host1:18800,host2:18800")
        try:
            parse_addresses(value)
        except ValueError as exc:
            raise OptionError("lmq.servers", f"must be host:port,host:port: {exc}") from exc
        return value

    def _selection(self) -> Selection:
        queue, pattern = self.name("subscribe"), self.name("subscribePattern", PATTERN_BYTES_MAX)
        if queue is None and pattern is None:
            raise OptionError(
                "subscribe", "or 'subscribePattern' is required: the queue to read, or a pattern of queues"
            )
        if queue is not None and pattern is not None:
            raise OptionError("subscribe", "and 'subscribePattern' exclude each other: give only one of them")
        return Selection(queue, pattern)


def _check_name(key: str, operation: Operation | None) -> None:
    option = _BY_KEY.get(key)
    if option is not None:
        if operation is not None and operation not in option.used_by:
            uses = " and ".join(sorted(use.value for use in option.used_by))
            raise OptionError(option.name, f"is for {uses}, not for {operation.value}")
        return
    if key in _REFUSED:
        raise OptionError(key, _REFUSED[key])
    if key.startswith("kafka."):
        raise OptionError(key, "is Kafka's: the servers are given in 'lmq.servers'")
    # Others are left alone: Spark passes on what its own machinery uses, such as checkpointLocation.
    if key.startswith("lmq."):
        known = [option.name for option in OPTIONS if option.name.startswith("lmq.")]
        close = difflib.get_close_matches(key, [name.lower() for name in known], n=1)
        hint = f"did you mean {_BY_KEY[close[0]].name!r}?" if close else f"there are {', '.join(known)}"
        raise OptionError(key, f"is unknown: {hint}")
