"""The reference of the data source's options: names, defaults, meanings, and what is refused with a hint."""

from __future__ import annotations

import difflib
from enum import Enum
from typing import Final, NamedTuple

from .errors import OptionError

__all__ = ["OPTIONS", "Operation", "Option", "check_name"]


class Operation(Enum):
    """The operations that options apply to; the value is the name in messages."""

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
        name: the documented spelling; case is ignored.
        default: as text; empty if there is none.
        used_by: the operations that it applies to.
        meaning: one or two sentences.
    """

    name: str
    default: str
    used_by: frozenset[Operation]
    meaning: str


OPTIONS: Final[tuple[Option, ...]] = (
    Option(
        "lmq.servers",
        "",
        _ALL,
        "Required. MessagePack-RPC addresses of nodes, host:port,host:port, one of which must answer at the "
        "start; the cluster reports the others.",
    ),
    Option("servers", "", _ALL, "Alias of lmq.servers."),
    Option(
        "lmq.timeout",
        "600",
        _ALL,
        "Maximum seconds of a call over all attempts and nodes, for example while the cluster has no "
        "majority, before the task or query fails; at most 86400. The first contact fails after at most 15 "
        "seconds.",
    ),
    Option(
        "lmq.discover",
        "true",
        _ALL,
        "Use the addresses that the cluster reports too; false if they are unreachable, as behind NAT.",
    ),
    Option("lmq.connectTimeout", "2", _ALL, "Maximum seconds for a node to accept a connection."),
    Option("lmq.token", "", _ALL, "Access token; default: the driver's environment variable LMQ_TOKEN."),
    Option(
        "lmq.token.file",
        "",
        _ALL,
        "File on the driver that contains the token; default: the driver's LMQ_TOKEN_FILE. It is read again "
        "when a micro-batch is planned and when nodes refuse the token, also on executors that have the file.",
    ),
    Option(
        "lmq.tls.ca",
        "",
        _ALL,
        "File on every machine with the certificate of the nodes' authority, or the word system for the "
        "authorities that the machine trusts; enables TLS. It is read again for each connection. Default: the"
        " driver's LMQ_CA_FILE.",
    ),
    Option(
        "lmq.tls.cert",
        "",
        _ALL,
        "File on every machine with the client's certificate and key, for nodes that require one. Default: "
        "the driver's LMQ_CERT_FILE.",
    ),
    Option(
        "lmq.environment",
        "true",
        _ALL,
        "Take missing credentials from the driver's environment.",
    ),
    Option(
        "subscribe",
        "",
        _READS,
        "The queue to read, or several, separated by commas. Exactly one of subscribe and subscribePattern is"
        " required.",
    ),
    Option("subscribePattern", "", _STREAM, "Regular expression (RE2) that matches the names of the queues to read."),
    Option("includeAttributes", "false", _READS, "Add the columns attributes and attribute_types."),
    Option(
        "includeDelivery",
        "false",
        _READS,
        "Add the columns delivery, deliveries_left, pushed_at, priority, group, label, origin, expires_at, ttl, type, part, "
        "parts and incarnation.",
    ),
    Option("explode", "false", _READS, "Return one row for each part of a compound message instead of one row."),
    Option(
        "minPartitions",
        "1",
        _READS,
        "Minimum number of tasks, if there are enough messages; long queues get more. For batch reads it "
        "holds for each queue, at most 1000.",
    ),
    Option(
        "failOnDataLoss",
        "true",
        _STREAM,
        "Fail the query if messages are lost or may be read twice; false logs them and continues.",
    ),
    Option("lmq.lease", "86400", _STREAM, "Seconds that messages stay reserved after the last renewal by the query."),
    Option("lmq.subscription", "", _STREAM, "Name of the subscription; default: a random one, kept in the checkpoint."),
    Option("maxOffsetsPerTrigger", "100000", _STREAM, "Maximum number of messages in one micro-batch, at most 100000."),
    Option(
        "maxBytesPerTrigger",
        "134217728",
        _STREAM,
        "Bytes of bodies at which a micro-batch is full; it has at least one message.",
    ),
    Option(
        "minOffsetsPerTrigger",
        "1",
        _STREAM,
        "Number of readable messages that a micro-batch waits for, at most for maxTriggerDelay.",
    ),
    Option("maxTriggerDelay", "900", _STREAM, "Maximum seconds that minOffsetsPerTrigger delays a micro-batch."),
    Option("mode", "peek", _BATCH, "peek, the only mode: read messages and leave them in the queue."),
    Option("queue", "", _WRITE, "The queue to write to; overrides the column queue."),
    Option(
        "priority", "", _WRITE, "Priority of rows without a column priority: 32 bits, lower ones are delivered first."
    ),
    Option("delay", "", _WRITE, "Seconds after which rows can be pulled that have neither a column delay nor due."),
    Option("ttl", "", _WRITE, "Seconds after which rows without a column ttl expire."),
    Option("group", "", _WRITE, "Group of rows without a column group: rows of a group are delivered one at a time."),
    Option(
        "label", "", _WRITE, "Label of rows without a column label, by which they can be withdrawn while they wait."
    ),
    Option("lmq.batchSize", "4000", _WRITE, "Maximum number of messages in one request, at most 10000."),
    Option("lmq.batchBytes", "1048576", _WRITE, "Bytes after which a request is sent, at most 8388608."),
    Option("lmq.rate", "", _WRITE, "Maximum messages per second that each task stores, on average."),
    Option(
        "lmq.application",
        "",
        _WRITE,
        "Name of a batch write that may be repeated, with lmq.epoch: no row is stored twice. A streaming "
        "write uses its query's id.",
    ),
    Option(
        "lmq.epoch", "", _WRITE, "Number of the write among those of lmq.application, such as that of the micro-batch."
    ),
)

_BY_KEY: Final = {option.name.lower(): option for option in OPTIONS}
_READ_ALL: Final = "a queue is always read from its head, and the cluster remembers what was read"
_REFUSED: Final = {
    "assign": "is Kafka's: name the queue with 'subscribe'",
    "startingOffsets": f"is Kafka's: {_READ_ALL}",
    "endingOffsets": f"is Kafka's: {_READ_ALL}",
    "startingTimestamp": f"is Kafka's: {_READ_ALL}",
    "endingTimestamp": f"is Kafka's: {_READ_ALL}",
    "startingOffsetsByTimestamp": f"is Kafka's: {_READ_ALL}",
    "endingOffsetsByTimestamp": f"is Kafka's: {_READ_ALL}",
    "topic": "is Kafka's: name the queue with 'queue'",
}
"""Options of Kafka's source that do not exist here, with the alternative."""
_REFUSED_BY_KEY: Final = {name.lower(): (name, hint) for name, hint in _REFUSED.items()}
_SPARKS: Final = frozenset(
    {
        "asyncprogresstrackingcheckpointintervalms",
        "asyncprogresstrackingenabled",
        "checkpointlocation",
        "path",
        "paths",
        "queryname",
        "outputmode",
        "trigger",
    }
)
"""Options that Spark itself uses and passes on."""


def check_name(given: str, operation: Operation | None) -> None:
    """Check that an option exists and applies to the operation; None allows any operation.

    Raises:
        OptionError: it does not exist, or applies to another operation.
    """
    key = given.lower()
    option = _BY_KEY.get(key)
    if option is not None:
        if operation is not None and operation not in option.used_by:
            uses = " and ".join(sorted(use.value for use in option.used_by))
            raise OptionError(option.name, f"is for {uses}, not for {operation.value}")
        return
    if key in _REFUSED_BY_KEY:
        raise OptionError(*_REFUSED_BY_KEY[key])
    if key.startswith("kafka."):
        raise OptionError(given, "is Kafka's: set 'lmq.servers'")
    if key in _SPARKS or key.startswith(("spark.", "__")):
        return
    known = [one for one in OPTIONS if operation is None or operation in one.used_by]
    close = difflib.get_close_matches(key, [one.name.lower() for one in known], n=1)
    hint = (
        f"did you mean {_BY_KEY[close[0]].name!r}?"
        if close
        else f"the options are {', '.join(one.name for one in known)}"
    )
    raise OptionError(given, f"is unknown: {hint}")
