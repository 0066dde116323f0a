"""The commands that the log carries: one record for each, with its fields, its code and the messages that it touches.

A docstring states the effect and, after "Result:", the result. Every command may instead result in a `Fault`. All
names are byte strings and all times integer microseconds. Delivery numbers stand for message ids, which the node
renders. `owner` is the owner of the state that the command creates or names, empty if there is none.

In the log a command is a list of its code and its fields in order, so that any encoding can carry it. Trailing fields
may be absent if they have defaults. The handler of a command, see `Machine`, checks the fields.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, ClassVar

from .touches import Copies, Head, Moved, Released, Returned, Tail, Touch

__all__ = [
    "PULLS", "AbandonBatches", "Ack", "Barrier", "BeginEpoch", "Bind", "CancelMoveTask", "CancelPush", "ChangeSchedule",
    "Claim", "Command", "Compile", "Create", "Delete", "DeletePolled", "DeleteToken", "Digest", "Encoded", "EndJobs",
    "EndSession", "Extend", "FinishEpoch", "LeaveQueue", "Lock", "Match", "Move", "Nack", "Op", "OpenSession", "Place",
    "Poll", "Pull", "PullFirst", "PullInSession", "Purge", "Push", "PushAttempts", "PushEach", "PushRows", "PushStream",
    "Redrive", "Renew", "RenewSession", "ReportClock", "ReportDigest", "Reserve", "ScheduleAction", "ScheduleResult", "SetApiKey",
    "SetDefaults", "SetPollLimits", "SetProperties", "SetSalt", "SetSchedule", "SetScheduleClock", "SetTime",
    "SetToken", "SettleBatches", "StartMoveTask", "SupplyTimes", "Suspend", "Transaction", "Unlock", "Update",
    "Upgrade", "decode",
]  # fmt: skip

Encoded = list[Any]
"""A command as the log carries it: ``[code, field, ...]`` of integers, byte strings, lists and None."""
Match = Callable[[bytes], bool]
Compile = Callable[[bytes], Match]
"""Compiles a regular expression to an unanchored search; raises ValueError if it is invalid. Must be deterministic."""
Pairs = list[list[Any]]
"""Properties or annotations as ``[name, value]``."""


class Op(IntEnum):
    """The codes. They are part of the log's format: never renumber."""

    PUSH = 1
    PUSH_ROWS = 2
    PUSH_EACH = 3
    PUSH_STREAM = 4
    CANCEL_PUSH = 5
    PUSH_ATTEMPTS = 6
    PULL = 10
    PULL_FIRST = 11
    PULL_IN_SESSION = 12
    POLL = 13
    ACK = 20
    NACK = 21
    EXTEND = 22
    UPDATE = 23
    DELETE_POLLED = 24
    TRANSACTION = 25
    CREATE = 30
    DELETE = 31
    SET_PROPERTIES = 32
    SET_DEFAULTS = 33
    SUSPEND = 34
    BIND = 35
    PURGE = 36
    MOVE = 37
    REDRIVE = 38
    SET_POLL_LIMITS = 39
    CLAIM = 40
    RESERVE = 41
    RENEW = 42
    SETTLE_BATCHES = 43
    ABANDON_BATCHES = 44
    START_MOVE_TASK = 45
    CANCEL_MOVE_TASK = 46
    BEGIN_EPOCH = 50
    FINISH_EPOCH = 51
    END_JOBS = 52
    OPEN_SESSION = 60
    RENEW_SESSION = 61
    END_SESSION = 62
    LEAVE_QUEUE = 63
    LOCK = 64
    UNLOCK = 65
    BARRIER = 70
    SET_SALT = 71
    UPGRADE = 72
    SET_TIME = 73
    DIGEST = 74
    REPORT_DIGEST = 75
    SET_TOKEN = 80
    DELETE_TOKEN = 81
    SET_API_KEY = 82
    SET_SCHEDULE = 90
    CHANGE_SCHEDULE = 91
    SUPPLY_TIMES = 92
    REPORT_CLOCK = 93
    SET_SCHEDULE_CLOCK = 94


class Place(IntEnum):
    """The place to which a nack returns a message. Part of the log's format."""

    TAIL = 0
    KEEP = 1
    HEAD = 2


class ScheduleAction(IntEnum):
    """The change that a command makes to a schedule. Part of the log's format."""

    REMOVE = 0
    PAUSE = 1
    RESUME = 2
    RUN = 3


class ScheduleResult(IntEnum):
    """The outcome of setting a schedule."""

    UNCHANGED = 0
    CREATED = 1
    REPLACED = 2


class Command:
    """A command of the log.

    Attributes:
        op: its code.
    """

    __slots__ = ()
    __match_args__: ClassVar[tuple[str, ...]] = ()
    op: ClassVar[Op]

    def __init_subclass__(cls) -> None:
        _RECORDS[cls.op] = cls

    def encode(self) -> Encoded:
        """Return the command as the log carries it."""
        return [self.op, *[getattr(self, name) for name in self.__match_args__]]

    def touches(self) -> tuple[Touch, ...]:
        """Return the messages that the command reads or stores, as far as the command itself shows them."""
        return ()


_RECORDS: dict[int, type[Command]] = {}


def decode(encoded: Encoded) -> Command:
    """Return a command of the log as its record, whose fields are unchecked.

    Raises:
        KeyError: there is no such code.
        TypeError: fields are missing or too many, or the code is no number.
    """
    record: Callable[..., Command] = _RECORDS[encoded[0]]
    return record(*encoded[1:])


# --- push -------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Push(Command):
    """Store bare bodies, each unless the queue refuses it; with a producer, once by their numbers from `first` on.

    Result: a `PushFlag` for each.
    """

    op = Op.PUSH
    queue: bytes
    content_type: bytes | None
    contents: list[bytes]
    producer: bytes | None = None
    first: int = 0
    owner: bytes = b""

    def touches(self) -> tuple[Touch, ...]:
        return (Tail(self.queue, len(self.contents)),)


@dataclass(slots=True)
class PushRows(Command):
    """Store messages with options, all or none; with a producer, once by their numbers from `first` on.

    `rows` are ``[content, content type or None, attributes, idempotency key or None, options]``, perhaps followed by
    request headers ``[[name, value]]``, of which those that the hooks of the queue name become attributes. The options
    are ``[delay or -1, due time or 0, time to live or 0, priority, label, group]``, or ``[]`` for none. A bare body in
    place of a row has nothing but the options of the row before. With `must_exist` the queue is not created,
    and a push is refused while pushes are suspended. If the queue has no room, the push waits up to `wait_us`.

    Result: ``(PushFlag, sequence)`` for each, or `Waits`.
    """

    op = Op.PUSH_ROWS
    queue: bytes
    rows: Sequence[Any]
    owner: bytes = b""
    producer: bytes | None = None
    first: int = 0
    must_exist: bool = False
    wait_us: int = 0

    def touches(self) -> tuple[Touch, ...]:
        return (Tail(self.queue, len(self.rows)),)


@dataclass(slots=True)
class PushAttempts(Command):
    """Store messages in an existing queue, each unless the queue refuses it or its attempt is known.

    `rows` are like those of `PushRows`, with an attempt of the owner in place of the key, or None: a row whose attempt on
    this queue is known is answered with the result of the first.

    Result: ``(PushFlag, sequence)`` for each, with a sequence of 0 for those that the queue refuses.
    """

    op = Op.PUSH_ATTEMPTS
    queue: bytes
    rows: list[Any]
    owner: bytes = b""

    def touches(self) -> tuple[Touch, ...]:
        return (Tail(self.queue, len(self.rows)),)


@dataclass(slots=True)
class PushEach(Command):
    """Store a copy of a message, a row of `PushRows` without key and options, in each of these queues that exists.

    Result: ``(queue, PushFlag)`` for each of those.
    """

    op = Op.PUSH_EACH
    queues: list[bytes]
    item: list[Any]

    def touches(self) -> tuple[Touch, ...]:
        return (Copies(self.queues),)


@dataclass(slots=True)
class PushStream(Command):
    """Store messages of a job's stream, numbered from `first` on, unless they are stored already.

    `rows` are ``[content, content type or None, attributes]``, perhaps followed by options as in `PushRows`. The cluster
    appends `note` to the stream's notes and drops the notes once the stream is `done`. `epoch` and `run` are set by a job
    that writes in epochs; the note is then the digests of the messages.

    Result: a `PushFlag` for each; an empty list for a repetition.
    """

    op = Op.PUSH_STREAM
    queue: bytes
    rows: Sequence[Any]
    job: bytes
    stream: bytes
    first: int
    note: bytes
    done: bool
    owner: bytes = b""
    epoch: int = -1
    run: bytes = b""

    def touches(self) -> tuple[Touch, ...]:
        return (Tail(self.queue, len(self.rows)),)


@dataclass(slots=True)
class CancelPush(Command):
    """Refuse a push that waits for room. Result: whether it waited."""

    op = Op.CANCEL_PUSH
    ticket: int
    owner: bytes = b""


# --- pull -------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Pull(Command):
    """Lease up to `count` messages for `lease_us`, 0 for the queue's timeout; or with `settles` acknowledge them at once.

    Result: `Delivered` for each; None if the command must be repeated, because it met only exhausted messages, as many as
    one command may drop. The other pulls have the same result.
    """

    op = Op.PULL
    queue: bytes
    count: int
    lease_us: int = 0
    settles: bool = False

    def touches(self) -> tuple[Touch, ...]:
        return (Head(self.queue, self.count),)


@dataclass(slots=True)
class PullFirst(Command):
    """Lease up to `count` messages of these queues, in the order in which they became due."""

    op = Op.PULL_FIRST
    queues: list[bytes]
    count: int

    def touches(self) -> tuple[Touch, ...]:
        return tuple(Head(queue, self.count) for queue in self.queues)


@dataclass(slots=True)
class PullInSession(Command):
    """Lease up to `count` messages until the session ends, at most for `lease_us` if that is not 0.

    `charge` is the number of deliveries charged, 0 or 1. `known` is the last delivery number of the queue that the client has
    received, -1 if it does not report one; later deliveries that the session holds are returned again.
    """

    op = Op.PULL_IN_SESSION
    queue: bytes
    count: int
    lease_us: int
    session: int
    charge: int
    known: int
    owner: bytes = b""

    def touches(self) -> tuple[Touch, ...]:
        return (Head(self.queue, self.count),)


@dataclass(slots=True)
class Poll(Command):
    """Deliver up to `count` messages under their tags and hide them for `hide_us`; with `takes_hidden` also hidden ones.

    `is_again` is true if the poll was counted before and has been waiting since.

    A poll under an attempt of the owner that the cluster remembers, for `remember_us` after the poll that got messages,
    returns the same deliveries again, hidden for `hide_us` from now on, if all of them are still leased, there are no
    more than `count`, and they are to be hidden. Otherwise it is a poll like any other.
    """

    op = Op.POLL
    queue: bytes
    count: int
    hide_us: int
    takes_hidden: bool
    is_again: bool
    owner: bytes = b""
    attempt: bytes = b""
    remember_us: int = 0

    def touches(self) -> tuple[Touch, ...]:
        return (Head(self.queue, self.count),)


PULLS = frozenset((Op.PULL, Op.PULL_FIRST, Op.PULL_IN_SESSION, Op.POLL))
"""Codes of the commands whose result is a list of deliveries."""


# --- settle -----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Ack(Command):
    """Acknowledge deliveries, which removes their messages.

    Result: whether each was leased, None if the queue does not exist. `Nack` and `Extend` have the same result.
    """

    op = Op.ACK
    queue: bytes
    numbers: list[int]


@dataclass(slots=True)
class Nack(Command):
    """Return messages for redelivery: to a place in line, or after `delay_us`, -1 for the queue's own delay.

    With `undoes` the delivery counts as if it had not happened: the message returns to its old place, uncharged. A
    `reason`, UTF-8, becomes an attribute of the messages, whose attributes then have at most `attribute_bytes_max` bytes.
    """

    op = Op.NACK
    queue: bytes
    numbers: list[int]
    place: int = Place.TAIL
    delay_us: int = -1
    undoes: bool = False
    reason: bytes = b""
    attribute_bytes_max: int = 0

    def encode(self) -> Encoded:
        # Most nacks have no reason, and no bytes in the log for it.
        encoded = Command.encode(self)
        return encoded if self.reason else encoded[:-2]

    def touches(self) -> tuple[Touch, ...]:
        return () if self.undoes else (Returned(self.queue, self.numbers),)


@dataclass(slots=True)
class Extend(Command):
    """Restart leases for `lease_us`, 0 for the queue's timeout."""

    op = Op.EXTEND
    queue: bytes
    numbers: list[int]
    lease_us: int = 0


@dataclass(slots=True)
class Update(Command):
    """Hide a polled message again, under a new tag unless it `keeps_tag`. Result: `Updated`."""

    op = Op.UPDATE
    queue: bytes
    message: int
    tag: int
    hide_us: int
    keeps_tag: bool = False


@dataclass(slots=True)
class DeletePolled(Command):
    """Remove polled messages by ``(sequence, tag)``. Result: the `TagState` of each; those with a valid tag are removed."""

    op = Op.DELETE_POLLED
    queue: bytes
    pairs: Sequence[tuple[int, int]]


@dataclass(slots=True)
class Transaction(Command):
    """Carry out all steps or none.

    The steps are encoded `PushRows`, `Ack`, `Nack` and `Extend` with one message each.

    Result: that of each step, or `Conflict`.
    """

    op = Op.TRANSACTION
    steps: list[Encoded]
    owner: bytes = b""


# --- queues -----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Create(Command):
    """Create a queue with these properties and annotations unless it exists; with `indexed` its messages are found by id.

    Result: whether it is new.
    """

    op = Op.CREATE
    queue: bytes
    owner: bytes = b""
    pairs: Pairs = field(default_factory=list)
    indexed: bool = False
    annotations: Pairs = field(default_factory=list)


@dataclass(slots=True)
class Delete(Command):
    """Delete a queue with its messages. Result: whether it existed."""

    op = Op.DELETE
    queue: bytes


@dataclass(slots=True)
class SetProperties(Command):
    """Set some of a queue's own properties, with `only_unset` those that are not set; with `clears` remove all others first.

    Changes some of its annotations too, all or nothing; `clears` keeps the others. A value of None removes a property or
    an annotation. Creates the queue if needed, unless it `must_exist`.

    Result: True.
    """

    op = Op.SET_PROPERTIES
    queue: bytes
    pairs: Pairs
    only_unset: bool = False
    clears: bool = False
    annotations: Pairs = field(default_factory=list)
    must_exist: bool = False


@dataclass(slots=True)
class SetDefaults(Command):
    """Replace the default rules with these ``[pattern, [[name, value]]]``. Result: True."""

    op = Op.SET_DEFAULTS
    rules: list[list[Any]]


@dataclass(slots=True)
class Suspend(Command):
    """Suspend or resume the deliveries of a queue. Result: True, None if the queue does not exist."""

    op = Op.SUSPEND
    queue: bytes
    suspended: bool


@dataclass(slots=True)
class Bind(Command):
    """Copy pushes to one queue into another from now on, or with `bound` false no more; creates queues to bind.

    Result: whether that is a change.
    """

    op = Op.BIND
    source: bytes
    target: bytes
    bound: bool = True


@dataclass(slots=True)
class Purge(Command):
    """Remove up to `limit` messages that are not leased; with a label only those that have it.

    With a limit of 0, remove all due messages without options, however many, and a bounded number of the others. With
    `everything`, remove leased ones too. If `sequences` is not None, remove only the messages with these sequences, of
    those with the label, or without a label of those that the cluster has moved here.

    Result: the number removed, None if the queue does not exist.
    """

    op = Op.PURGE
    queue: bytes
    limit: int = 0
    label: bytes = b""
    sequences: list[int] | None = None
    everything: bool = False

    def touches(self) -> tuple[Touch, ...]:
        return () if self.label or self.sequences is not None else (Head(self.queue, self.limit),)


@dataclass(slots=True)
class Move(Command):
    """Move up to `limit` messages that could be pulled to the end of another queue, as new messages.

    Result: the number moved, None if the queue does not exist.
    """

    op = Op.MOVE
    queue: bytes
    target: bytes
    limit: int = 0

    def touches(self) -> tuple[Touch, ...]:
        return Head(self.queue, self.limit), Moved(self.queue, None, self.limit)


@dataclass(slots=True)
class Redrive(Command):
    """Send up to `limit` messages that the cluster has moved here back to where they came from, or to `target`.

    If `target` is a list of queues, messages return until the first that came from none of them. A label selects the
    messages that have it, `sequences` those with these sequences.

    Result: the number sent, None if the queue does not exist.
    """

    op = Op.REDRIVE
    queue: bytes
    target: bytes | list[bytes]
    label: bytes
    limit: int = 0
    sequences: list[int] | None = None

    def touches(self) -> tuple[Touch, ...]:
        return (Moved(self.queue, self.label, self.limit, self.sequences),)


@dataclass(slots=True)
class StartMoveTask(Command):
    """Start to move the messages of a queue to another one, or to their origins if `destination` is empty.

    At most `rate` messages a second, 0 for no limit. Without a destination, they return only to `origins`, None for any.

    Result: the number of the task.
    """

    op = Op.START_MOVE_TASK
    source: bytes
    destination: bytes = b""
    rate: int = 0
    origins: list[bytes] | None = None


@dataclass(slots=True)
class CancelMoveTask(Command):
    """Cancel a running task. Result: the number of messages that it has moved."""

    op = Op.CANCEL_MOVE_TASK
    source: bytes
    number: int


@dataclass(slots=True)
class SetPollLimits(Command):
    """Change the limits of a queue whose messages are found by id, or those of all together if the name is empty.

    `suspended` says whether to suspend deletes, polls, pushes and updates, each None for no change. `throttle` is the
    most polls, None for any number, in a window.

    Result: which of the four are suspended now.
    """

    op = Op.SET_POLL_LIMITS
    queue: bytes
    suspended: list[bool | None] | None
    throttle: tuple[int | None, int] | None = None


# --- batch leases -----------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Claim(Command):
    """Begin a session of a subscription, which ends the one before. Result: its number."""

    op = Op.CLAIM
    subscription: bytes
    owner: bytes = b""


@dataclass(slots=True)
class Reserve(Command):
    """Lease up to `count` messages of a queue, or of several in the order in which they became due, for an epoch.

    `are_all` is true if the batch is complete when these queues have no more. `session` is the subscription's, 0 for none.

    Result: `Reserved`.
    """

    op = Op.RESERVE
    subscription: bytes
    epoch: int
    source: bytes | list[bytes]
    are_all: bool
    count: int
    lease_us: int
    session: int = 0
    owner: bytes = b""

    def touches(self) -> tuple[Touch, ...]:
        queues = self.source if isinstance(self.source, list) else [self.source]
        return tuple(Head(queue, self.count) for queue in queues)


@dataclass(slots=True)
class Renew(Command):
    """Extend the leases of the live batches from an epoch on.

    Result: their number, and the epoch from which to repeat the command, 0 if it is done.
    """

    op = Op.RENEW
    subscription: bytes
    lease_us: int
    session: int = 0
    from_epoch: int = 0
    owner: bytes = b""


@dataclass(slots=True)
class SettleBatches(Command):
    """Acknowledge all batches up to an epoch.

    Result: the epochs among them of which leases had expired, and whether to repeat the command.
    """

    op = Op.SETTLE_BATCHES
    subscription: bytes
    epoch: int
    session: int = 0
    owner: bytes = b""


@dataclass(slots=True)
class AbandonBatches(Command):
    """Return the messages of all batches, uncharged; with `forgets` also forget the subscription, whatever its session.

    With `forgets`, an empty owner means the subscription of any owner.

    Result: whether to repeat the command; None if `forgets` and there is no such subscription.
    """

    op = Op.ABANDON_BATCHES
    subscription: bytes
    session: int = 0
    owner: bytes = b""
    forgets: bool = False


# --- jobs -------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class BeginEpoch(Command):
    """Begin a run of an epoch of a job. `seed` is random and unknown to clients.

    Result: 0 if it has begun, 1 if the command must be repeated, 2 if the epoch is finished.
    """

    op = Op.BEGIN_EPOCH
    job: bytes
    epoch: int
    run: bytes
    seed: bytes
    owner: bytes = b""


@dataclass(slots=True)
class FinishEpoch(Command):
    """Finish an epoch of which `run` has stored this number of rows, with this sum of their digests. Result: True."""

    op = Op.FINISH_EPOCH
    job: bytes
    epoch: int
    run: bytes
    rows: int
    digest: bytes
    owner: bytes = b""


@dataclass(slots=True)
class EndJobs(Command):
    """Forget jobs. Result: the number of their streams."""

    op = Op.END_JOBS
    jobs: list[bytes]
    owner: bytes = b""


# --- sessions and locks -----------------------------------------------------------------------------------------------


@dataclass(slots=True)
class OpenSession(Command):
    """Open a session that ends `ttl_us` after its last renewal. Result: its number."""

    op = Op.OPEN_SESSION
    ttl_us: int
    owner: bytes = b""


@dataclass(slots=True)
class RenewSession(Command):
    """Renew a session. Result: whether it is alive."""

    op = Op.RENEW_SESSION
    session: int
    owner: bytes = b""


@dataclass(slots=True)
class EndSession(Command):
    """End a session and release what it holds. Result: whether it was alive."""

    op = Op.END_SESSION
    session: int
    owner: bytes = b""

    def touches(self) -> tuple[Touch, ...]:
        return (Released(self.session),)


@dataclass(slots=True)
class LeaveQueue(Command):
    """Give up a session's turn at an exclusive queue and release its leases there.

    Result: whether the session was in line, None if the command must be repeated.
    """

    op = Op.LEAVE_QUEUE
    queue: bytes
    session: int
    owner: bytes = b""

    def touches(self) -> tuple[Touch, ...]:
        return (Released(self.session),)


@dataclass(slots=True)
class Lock(Command):
    """Acquire a lock for a session; with `waits` stand in line for it.

    Result: the fencing token, 0 if the session does not have the lock.
    """

    op = Op.LOCK
    name: bytes
    session: int
    waits: bool
    owner: bytes = b""


@dataclass(slots=True)
class Unlock(Command):
    """Release a lock, or leave its line. Result: whether the session held the lock or waited for it."""

    op = Op.UNLOCK
    name: bytes
    session: int
    owner: bytes = b""


# --- cluster ----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Barrier(Command):
    """Change nothing. Result: True."""

    op = Op.BARRIER


@dataclass(slots=True)
class SetSalt(Command):
    """Set the salt of message ids, 10 bytes, unless there is one; with `renews` replace it, which invalidates all ids.

    Result: True.
    """

    op = Op.SET_SALT
    salt: bytes
    renews: bool = False


@dataclass(slots=True)
class Upgrade(Command):
    """Raise the machine version. Result: the version from now on."""

    op = Op.UPGRADE
    version: int


@dataclass(slots=True)
class SetTime(Command):
    """Record the Unix time. Result: True."""

    op = Op.SET_TIME
    unix_us: int


@dataclass(slots=True)
class Digest(Command):
    """Change nothing. Result: a digest of counts and of a sample that follows from `token`."""

    op = Op.DIGEST
    token: bytes


@dataclass(slots=True)
class ReportDigest(Command):
    """Change nothing; inform the nodes of the digest of a member. Result: True."""

    op = Op.REPORT_DIGEST
    token: bytes
    member: bytes
    digest: bytes


@dataclass(slots=True)
class SetToken(Command):
    """Create a token with the SHA-256 digest of its secret; an empty principal makes it a principal in its own right.

    `sqs_key` is the secret that signs requests to the SQS port, empty if the token is not for that port.

    Result: `TokenResult`.
    """

    op = Op.SET_TOKEN
    name: bytes
    digest: bytes
    role: int
    pattern: bytes
    lifetime_us: int
    without_admin: bool
    created_us: int
    principal: bytes = b""
    sqs_key: bytes = b""


@dataclass(slots=True)
class DeleteToken(Command):
    """Delete a token. Result: `TokenResult`."""

    op = Op.DELETE_TOKEN
    name: bytes
    without_admin: bool


@dataclass(slots=True)
class SetApiKey(Command):
    """Add an API key by its digest, or delete it if the prefix of queue names is None. Result: whether that is a change."""

    op = Op.SET_API_KEY
    digest: bytes
    prefix: bytes | None


# --- schedules --------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class SetSchedule(Command):
    """Create a schedule, or replace its definition unless it is the same.

    `definition` is ``[queue, [content type or None, attributes, options as in PushRows], timing]``, the timing
    ``[interval or 0, cron expression, time zone, start or 0, end or 0, jitter, once]``. The first due times are given if
    nodes compute them; with `done` no others follow. `was` is the queue of the schedule that the sender has seen, empty if it
    has seen none. All times of schedules are Unix times.

    Result: a `ScheduleResult`.
    """

    op = Op.SET_SCHEDULE
    name: bytes
    definition: list[Any]
    content: bytes
    times: list[int]
    done: bool
    was: bytes
    owner: bytes = b""


@dataclass(slots=True)
class ChangeSchedule(Command):
    """Carry out a `ScheduleAction` on a schedule; `was` is its queue, as the sender has seen it.

    Result: 0; the `PushFlag` of the message that was pushed.
    """

    op = Op.CHANGE_SCHEDULE
    name: bytes
    action: int
    was: bytes

    def touches(self) -> tuple[Touch, ...]:
        return (Tail(self.was, 1),) if self.action == ScheduleAction.RUN else ()


@dataclass(slots=True)
class SupplyTimes(Command):
    """Add due times to schedules.

    `rows` are ``[name, serial number, last known due time or 0, due times, number of earlier ones that were missed, whether
    no others follow]``. A row has no effect if the schedule has another serial number or knows another last due time.

    Result: the number of rows that had an effect.
    """

    op = Op.SUPPLY_TIMES
    rows: Sequence[Any]


@dataclass(slots=True)
class ReportClock(Command):
    """Record by how much the clock of a member is ahead of log time. Result: True."""

    op = Op.REPORT_CLOCK
    member: bytes
    ahead_us: int


@dataclass(slots=True)
class SetScheduleClock(Command):
    """Set by how much the clock of schedules is ahead of log time; while they are `held` their messages are refused.

    Result: True.
    """

    op = Op.SET_SCHEDULE_CLOCK
    ahead_us: int
    held: bool
