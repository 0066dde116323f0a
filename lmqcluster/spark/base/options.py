"""The validated options of the data source, modelled on those of Spark's Kafka source.

Names are case-insensitive, values are strings. Everything is validated when a read or write is planned: an unknown
option, one that the operation does not use, and a value out of range raise an `OptionError` that names it.
`reference.OPTIONS` lists all options.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from lmqcluster.client import PushOptions
from lmqcluster.client.transport.addresses import parse_addresses
from lmqcluster.client.transport.credentials import read_token
from lmqcluster.wire.limits import NAME_BYTES_MAX, PATTERN_BYTES_MAX, PUSH_COUNT_MAX

from .delivery import constant_options
from .errors import OptionError
from .option_reader import OptionReader
from .reference import Operation
from .schema import Extras

__all__ = ["BatchRead", "Connection", "Selection", "StreamRead", "Write", "check_common"]

BATCH_MESSAGES_MAX: Final = 100_000
"""Maximum number of messages under one batch lease."""
LEASE_S_MAX: Final = 30 * 86_400
_TIMEOUT_S_MAX: Final = 86_400
_CONNECT_TIMEOUT_S_MAX: Final = 300
_TRIGGER_DELAY_S_MAX: Final = 30 * 86_400
_PARTITIONS_MAX: Final = 10_000
_TABLE_PARTITIONS_MAX: Final = 1_000
_PUSH_BYTES_MAX: Final = 8 * 1024 * 1024
_BATCH_BYTES_MAX: Final = 1 << 40
_EPOCH_MAX: Final = (1 << 62) - 1
_BATCH_BYTES: Final = 128 * 1024 * 1024
_APPLICATION_BYTES_MAX: Final = 200
_RATE_MAX: Final = 1_000_000_000


@dataclass(frozen=True)
class Connection:
    """How to reach the cluster. Times are in seconds.

    Attributes:
        servers: the initial addresses.
        discovers: whether to also use the addresses that the cluster reports.
        token: the token to try first.
        token_file: file with a newer token, read when nodes refuse the first.
    """

    servers: str
    timeout_s: float
    connect_timeout_s: float
    discovers: bool = True
    token: str | None = field(default=None, repr=False)
    token_file: str | None = None
    tls_ca: str | None = None
    tls_cert: str | None = None

    @classmethod
    def parse(cls, given: OptionReader) -> Connection:
        """Validate the options of the connection; the driver's environment provides missing ones.

        Raises:
            OptionError: one is missing, out of range, or names a file that cannot be read.
        """
        environment = os.environ if given.boolean("lmq.environment", default=True) else {}
        token, token_file = _token(given, environment)
        return cls(
            servers=_servers(given),
            timeout_s=given.seconds("lmq.timeout", _TIMEOUT_S_MAX, default=600),
            connect_timeout_s=given.seconds("lmq.connectTimeout", _CONNECT_TIMEOUT_S_MAX, default=2),
            discovers=given.boolean("lmq.discover", default=True),
            token=token,
            token_file=token_file,
            tls_ca=given.text("lmq.tls.ca") or environment.get("LMQ_CA_FILE") or None,
            tls_cert=given.text("lmq.tls.cert") or environment.get("LMQ_CERT_FILE") or None,
        )


@dataclass(frozen=True)
class Selection:
    """The queues to read: by name, or all whose names match."""

    queues: tuple[str, ...]
    pattern: str | None = None

    @classmethod
    def parse(cls, given: OptionReader) -> Selection:
        """Validate the selection.

        Raises:
            OptionError: it is empty or ambiguous, or a name or pattern is out of range.
        """
        queues, pattern = given.text("subscribe"), given.name("subscribePattern", PATTERN_BYTES_MAX)
        if queues is None and pattern is None:
            raise OptionError(
                "subscribe", "or 'subscribePattern' is required: the queue to read, or a pattern of queues"
            )
        if queues is not None and pattern is not None:
            raise OptionError("subscribe", "and 'subscribePattern' exclude each other")
        names = tuple(dict.fromkeys(name.strip() for name in (queues or "").split(",") if name.strip()))
        if queues is not None and not names:
            raise OptionError("subscribe", f"names no queue: {queues!r}")
        for name in names:
            if len(name.encode()) > NAME_BYTES_MAX:
                raise OptionError("subscribe", f"must have at most {NAME_BYTES_MAX} bytes, not {len(name.encode())}")
        selection = cls(names, pattern)
        if len(selection.arguments().get("pattern", "").encode()) > PATTERN_BYTES_MAX:
            raise OptionError("subscribe", "names too many queues: use 'subscribePattern', or several queries")
        return selection

    def arguments(self) -> dict[str, Any]:
        """Return the selection as keyword arguments of the client's calls."""
        if self.pattern is not None:
            return {"pattern": self.pattern}
        if len(self.queues) == 1:
            return {"queue": self.queues[0]}
        return {"pattern": f"^(?:{'|'.join(map(re.escape, self.queues))})$"}

    def __str__(self) -> str:
        if self.pattern is not None:
            return f"queues matching {self.pattern!r}"
        return f"queue{'s' if len(self.queues) > 1 else ''} {', '.join(map(repr, self.queues))}"


@dataclass(frozen=True)
class StreamRead:
    """Options of a streaming read; `subscription` is None for a random one."""

    connection: Connection
    selection: Selection
    extras: Extras
    explode: bool
    partitions_min: int
    fail_on_data_loss: bool
    lease_s: float
    subscription: str | None
    messages_max: int
    bytes_max: int
    messages_min: int
    delay_s_max: float

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> StreamRead:
        """Validate the options of a query.

        Raises:
            OptionError: one is missing, unknown, out of range, or not for streaming reads.
        """
        given = OptionReader(options, Operation.STREAM_READ)
        messages_max = given.integer("maxOffsetsPerTrigger", 1, BATCH_MESSAGES_MAX, default=BATCH_MESSAGES_MAX)
        return cls(
            **_read(given),
            partitions_min=given.integer("minPartitions", 1, _PARTITIONS_MAX, default=1),
            fail_on_data_loss=given.boolean("failOnDataLoss", default=True),
            lease_s=given.seconds("lmq.lease", LEASE_S_MAX, default=86_400),
            subscription=given.name("lmq.subscription"),
            messages_max=messages_max,
            bytes_max=given.integer("maxBytesPerTrigger", 1, _BATCH_BYTES_MAX, default=_BATCH_BYTES),
            messages_min=given.integer("minOffsetsPerTrigger", 1, messages_max, default=1),
            delay_s_max=given.seconds("maxTriggerDelay", _TRIGGER_DELAY_S_MAX, default=900),
        )


@dataclass(frozen=True)
class BatchRead:
    """Options of a batch read."""

    connection: Connection
    selection: Selection
    extras: Extras
    explode: bool
    partitions_min: int

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> BatchRead:
        """Validate the options of a query.

        Raises:
            OptionError: one is missing, unknown, out of range, or not for batch reads.
        """
        mode = next((value for name, value in options.items() if name.lower() == "mode"), "peek").strip().lower()
        if mode == "drain":
            raise OptionError(
                "mode",
                "= 'drain' does not exist: a batch read cannot know when its result is safe, so it removes nothing. "
                "Use readStream with trigger(availableNow=True), or 'lmq-pipeline archive --once', or 'lmq-admin drain'",
            )
        if mode != "peek":
            raise OptionError("mode", f"must be peek, not {mode!r}")
        given = OptionReader(options, Operation.BATCH_READ)
        return cls(**_read(given), partitions_min=given.integer("minPartitions", 1, _TABLE_PARTITIONS_MAX, default=1))


@dataclass(frozen=True)
class Write:
    """Options of batch and streaming writes.

    Attributes:
        push_bytes: size at which a request is sent, not a limit.
        rate: maximum messages a second that each task stores; None for no limit.
        application: name of a repeatable batch write, together with `epoch`; None for one that is not repeatable.
        delivery: delivery options of rows that do not set their own.
    """

    connection: Connection
    queue: str | None
    push_count: int
    push_bytes: int
    rate: float | None
    application: str | None
    epoch: int
    delivery: PushOptions

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> Write:
        """Validate the options of a write.

        Raises:
            OptionError: one is missing, unknown, out of range, or not for writes.
        """
        given = OptionReader(options, Operation.WRITE)
        application = given.name("lmq.application", _APPLICATION_BYTES_MAX)
        if (application is None) != (given.text("lmq.epoch") is None):
            raise OptionError("lmq.epoch", "and 'lmq.application' identify a write together: set both or neither")
        return cls(
            connection=Connection.parse(given),
            queue=given.name("queue"),
            push_count=given.integer("lmq.batchSize", 1, PUSH_COUNT_MAX, default=4000),
            push_bytes=given.integer("lmq.batchBytes", 1, _PUSH_BYTES_MAX, default=1024 * 1024),
            rate=given.number("lmq.rate", _RATE_MAX),
            application=application,
            epoch=given.integer("lmq.epoch", 0, _EPOCH_MAX, default=0),
            delivery=constant_options(given),
        )


def check_common(options: Mapping[str, str]) -> Extras:
    """Validate the common options of batch and streaming reads, before Spark says which it will be.

    Returns:
        The requested columns beside those that are always present.

    Raises:
        OptionError: one is missing, unknown or out of range.
    """
    extras: Extras = _read(OptionReader(options, None))["extras"]
    return extras


def _read(given: OptionReader) -> dict[str, Any]:
    return {
        "connection": Connection.parse(given),
        "selection": Selection.parse(given),
        "extras": Extras(
            attributes=given.boolean("includeAttributes", default=False),
            delivery=given.boolean("includeDelivery", default=False),
        ),
        "explode": given.boolean("explode", default=False),
    }


def _servers(given: OptionReader) -> str:
    servers, alias = given.text("lmq.servers"), given.text("servers")
    if servers is not None and alias is not None:
        raise OptionError("servers", "is an alias of 'lmq.servers': set only one of them")
    value = servers or alias
    if value is None:
        raise OptionError("lmq.servers", "is required: the nodes' RPC addresses, such as host1:18800,host2:18800")
    try:
        parse_addresses(value)
    except ValueError as exc:
        raise OptionError("lmq.servers" if servers else "servers", f"must be host:port,host:port: {exc}") from exc
    return value


def _token(given: OptionReader, environment: Mapping[str, str]) -> tuple[str | None, str | None]:
    """Return the token, and the file that it was read from."""
    token, file = given.text("lmq.token"), given.text("lmq.token.file")
    if token is not None and file is not None:
        raise OptionError("lmq.token.file", "and 'lmq.token' exclude each other")
    if token is None and file is None:
        token, file = environment.get("LMQ_TOKEN") or None, environment.get("LMQ_TOKEN_FILE") or None
    if token is not None or file is None:
        return token, None
    try:
        return read_token(file), file
    except (OSError, ValueError) as exc:
        raise OptionError("lmq.token.file", f"= {file!r} cannot be read on the driver: {exc}") from exc
