"""The layout of commands: functions that build them, and the positions of their fields.

Code outside the core neither writes a command literally nor indexes into one
(`tests/unit/project/test_command_layout.py`). See `Op` for the effect and the result of each command. The last
arguments `owned` name the owner of the state that a command creates; they are empty if there is no owner.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from .commands import Command, Op, Place

__all__ = [
    "CONTENTS", "COUNT", "DIGEST", "ITEM", "MEMBER", "NUMBERS", "OP", "QUEUE", "ROWS", "SUBSCRIPTION", "TARGET",
    "TOKEN", "TYPE", "PullOptions", "abandon_batches", "ack_step", "barrier", "begin_epoch", "bind", "can_coalesce",
    "cancel_push", "charge_and_known", "claim", "clear_properties", "create_for", "create_indexed", "delete",
    "delete_api_key", "delete_polled", "delete_subscription", "delete_token", "digest", "end_jobs", "end_session",
    "extend_step", "finish_epoch", "found", "give_back", "give_back_step", "lease_pull", "leave_queue", "lock", "move",
    "open_session", "operation_of", "owner_and_number", "poll_pull", "producer_of", "pull", "pull_again", "pull_first",
    "pull_options_of", "pull_with", "purge", "push", "push_each", "push_existing", "push_items", "push_marked",
    "push_or_wait", "push_rows", "push_step", "redrive", "renew", "renew_salt", "renew_session", "report_digest",
    "reserve", "session_of", "session_pull", "set_api_key", "set_defaults", "set_properties", "set_time", "set_token",
    "settle", "settle_batches", "suspend", "suspend_endpoints", "throttle", "transaction", "unbind", "unlock",
    "update", "upgrade", "with_limit", "withdraw",
]  # fmt: skip

# --- positions of fields
# ----------------------------------------------------------------------------------------------

OP: Final = 0
QUEUE: Final = 1
"""Of all commands on one queue."""
SUBSCRIPTION: Final = 1
"""Of all commands on batch leases."""
TARGET: Final = 2
"""Of `move` and `redrive`."""
COUNT: Final = 2
"""Of pulls from one queue."""
NUMBERS: Final = 2
"""Of `settle` and `give_back`: the deliveries."""
ROWS: Final = 2
"""Of `push_items`, `push_rows`, `push_existing`, `push_or_wait`, `push_marked`."""
ITEM: Final = 2
"""Of `push_each`."""
TYPE: Final = 2
"""Of `push`: the content type of all contents."""
CONTENTS: Final = 3
"""Of `push`."""
TOKEN: Final = 1
"""Of `digest` and `report_digest`."""
MEMBER: Final = 2
"""Of `report_digest`."""
DIGEST: Final = 3
"""Of `report_digest`."""

_OPTIONS: Final = 3
_PRODUCER: Final = 4
_NUMBERED: Final = frozenset((Op.PUSH, Op.PUSH_TRAITS))

Pairs = list[list[Any]]


def producer_of(command: Command) -> bytes | None:
    """Return the producer that numbers the pushes of a command, None if they are not numbered."""
    numbered = command[OP] in _NUMBERED and len(command) > _PRODUCER
    producer: bytes | None = command[_PRODUCER] if numbered else None
    return producer


# --- effects of a command on lines, as far as the command itself shows them; all of these functions are total
# ----------

_TAKES: Final[dict[int, tuple[int, int]]] = {
    Op.PULL: (1, 2),
    Op.PULL_FIRST: (1, 2),
    Op.PULL_LEASE: (1, 2),
    Op.PULL_IN_SESSION: (1, 2),
    Op.POLL: (1, 2),
    Op.MOVE: (1, 3),
    Op.PURGE: (1, 2),
    Op.RESERVE: (3, 5),
}
"""Positions, in commands that take messages out of lines, of the queue or queues and of the number of messages."""
_STORES: Final[dict[int, int]] = {
    Op.PUSH: CONTENTS,
    Op.PUSH_ITEMS: ROWS,
    Op.PUSH_TRAITS: ROWS,
    Op.PUSH_EXISTING: ROWS,
    Op.PUSH_OR_WAIT: ROWS,
    Op.PUSH_MARKED: ROWS,
}
"""Position, in pushes, of the messages to store."""
_MOVED_MAX: Final = 10_000
_ONLY_BYTES: Final = {bytes}
_GIVES_BACK: Final = frozenset((Op.NACK, Op.GIVE_BACK))
_SESSION_AT: Final[dict[int, int]] = {Op.END_SESSION: 1, Op.LEAVE_QUEUE: 2}
"""Position, in commands that release a session's deliveries, of the session."""


def sources_of_pull(command: Command) -> tuple[list[bytes], int]:
    """Return the queues from which a command takes messages, and the most messages that it takes from each."""
    op = command[OP]
    places = _TAKES.get(op) if isinstance(op, int) else None
    if places is None or len(command) <= places[1]:
        return [], 0
    names, count = command[places[0]], command[places[1]]
    if type(names) is bytes:
        names = [names]
    if type(names) is not list or type(count) is not int:
        return [], 0
    return [name for name in names if type(name) is bytes], max(0, count)


def target_of_push(command: Command) -> tuple[bytes, int]:
    """Return the queue into which a command pushes, and the number of messages; an empty name for none."""
    op = command[OP]
    place = _STORES.get(op) if isinstance(op, int) else None
    if place is None or len(command) <= place or type(command[QUEUE]) is not bytes:
        return b"", 0
    rows = command[place]
    return command[QUEUE], len(rows) if type(rows) is list else 0


def targets_of_copies(command: Command) -> Sequence[bytes]:
    """Return the queues into each of which a command puts a copy of the same message."""
    names = command[1] if command[OP] == Op.PUSH_EACH and len(command) > 1 else ()
    return names if type(names) is list and set(map(type, names)) <= _ONLY_BYTES else ()


def steps_of(command: Command) -> list[Command]:
    """Return the operations of a transaction, or the command itself."""
    if command[OP] != Op.TRANSACTION:
        return [command]
    steps = command[1] if len(command) > 1 and type(command[1]) is list else []
    return [step for step in steps if type(step) is list and step]


def source_of_move(command: Command) -> tuple[bytes, bytes | None, int]:
    """Return the source queue of a command that moves messages, the label if it selects by one, and the most messages."""
    is_redrive = command[OP] == Op.REDRIVE
    place = 4 if is_redrive else 3
    if not (is_redrive or command[OP] == Op.MOVE) or len(command) <= place or type(command[place]) is not int:
        return b"", None, 0
    label = command[3] if is_redrive else None
    if type(command[QUEUE]) is not bytes or type(label) not in (bytes, type(None)):
        return b"", None, 0
    return command[QUEUE], label, max(0, min(command[place], _MOVED_MAX))


def target_of_move(command: Command) -> bytes:
    """Return the queue to which a `move` or `redrive` takes messages; empty if each returns to where it came from."""
    return command[TARGET] if type(command[TARGET]) is bytes else b""


def deliveries_returned_by(command: Command) -> tuple[bytes, list[int]]:
    """Return the queue in which a command gives deliveries back, and their numbers; an empty name for none."""
    is_one = isinstance(command[OP], int) and command[OP] in _GIVES_BACK and len(command) > NUMBERS
    if not is_one or type(command[QUEUE]) is not bytes:
        return b"", []
    numbers = command[NUMBERS] if type(command[NUMBERS]) is list else [command[NUMBERS]]
    return command[QUEUE], [number for number in numbers if type(number) is int]


def session_released_by(command: Command) -> int:
    """Return the session whose deliveries a command gives back, -1 for none."""
    op = command[OP]
    place = _SESSION_AT.get(op) if isinstance(op, int) else None
    return -1 if place is None or len(command) <= place or type(command[place]) is not int else command[place]


# --- push -------------------------------------------------------------------------------------------------------------


def push(
    queue: bytes, content_type: bytes | None, contents: list[bytes], producer: bytes | None, first: int, *owned: bytes
) -> Command:
    """Return a push of bare messages, numbered by a producer from `first` on if there is one."""
    return [Op.PUSH, queue, content_type, contents, producer, first, *owned]


def push_items(queue: bytes, rows: Sequence[Any], *owned: bytes) -> Command:
    """Return a push of messages with headers and keys."""
    return [Op.PUSH_ITEMS, queue, rows, *owned]


def push_rows(queue: bytes, rows: Sequence[Any], *owned: bytes | int) -> Command:
    """Return a push of messages with options; for those numbered by a producer, `owned` is the result of `owner_and_number`."""
    return [Op.PUSH_TRAITS, queue, rows, *owned]


def owner_and_number(owned: Sequence[bytes], producer: bytes, first: int) -> list[bytes | int]:
    """Return the last arguments of `push_rows` for messages numbered by a producer from `first` on."""
    return [*(owned or [b""]), producer, first]


def push_existing(queue: bytes, rows: Sequence[Any], *owned: bytes) -> Command:
    """Return a push of messages with options into a queue that exists."""
    return [Op.PUSH_EXISTING, queue, rows, *owned]


def push_or_wait(queue: bytes, rows: Sequence[Any], wait_us: int, *owned: bytes) -> Command:
    """Return a push of messages with options that waits for room."""
    return [Op.PUSH_OR_WAIT, queue, rows, wait_us, *owned]


def cancel_push(ticket: int, *owned: bytes) -> Command:
    """Return the command that withdraws a waiting push."""
    return [Op.CANCEL_PUSH, ticket, *owned]


def push_marked(
    queue: bytes, rows: Sequence[Any], stream: tuple[bytes, bytes], first: int, *more: bytes | bool | int
) -> Command:
    """Return a push of a writer's stream from a position on.

    `more` is the note, whether the stream is done, the owner, and perhaps the epoch and its run.
    """
    return [Op.PUSH_MARKED, queue, rows, *stream, first, *more]


def begin_epoch(job: bytes, epoch: int, run: bytes, seed: bytes, owner: bytes) -> Command:
    """Return the command that begins a run of an epoch of a job."""
    return [Op.BEGIN_EPOCH, job, epoch, run, seed, owner]


def finish_epoch(job: bytes, epoch: int, run: bytes, rows: int, digest: bytes, owner: bytes) -> Command:
    """Return the command that finishes an epoch with this number of rows and sum of their digests."""
    return [Op.FINISH_EPOCH, job, epoch, run, rows, digest, owner]


def push_each(queues: list[bytes], row: list[Any]) -> Command:
    """Return a push of a copy into each of these queues."""
    return [Op.PUSH_EACH, queues, row]


def end_jobs(names: list[bytes], owner: bytes) -> Command:
    """Return the command that forgets a writer's jobs."""
    return [Op.END_JOBS, names, owner]


# --- pull -------------------------------------------------------------------------------------------------------------

PullOptions = tuple[Any, ...]
"""The request of a pull beyond queue and count: the operation and its further arguments."""


def pull(queue: bytes, count: int) -> Command:
    """Return a pull with the queue's timeout."""
    return [Op.PULL, queue, count]


def pull_first(queues: list[bytes], count: int) -> Command:
    """Return a pull from one of these queues."""
    return [Op.PULL_FIRST, queues, count]


def pull_with(options: PullOptions, queue: bytes, count: int) -> Command:
    """Return a pull with this request."""
    op, *arguments = options
    return [op, queue, count, *arguments]


def lease_pull(lease_us: int, *, settles: bool = False) -> PullOptions:
    """Return a request for a lease of this length; with `settles` the messages are settled at once."""
    return (Op.PULL_LEASE, lease_us, settles)


def session_pull(lease_us: int, session: int, charge: int, known: int, *owned: bytes) -> PullOptions:
    """Return a request for leases that end with a session.

    `known` is the last number that the client has received, -1 if it does not report one.
    """
    return (Op.PULL_IN_SESSION, lease_us, session, charge, known, *owned)


def poll_pull(hidden_us: int, *, takes_hidden: bool) -> PullOptions:
    """Return a request for a poll by id and tag that has not been counted yet."""
    return (Op.POLL, hidden_us, takes_hidden, False)


def operation_of(options: PullOptions) -> Op:
    """Return the operation of a request."""
    op: Op = options[0]
    return op


def session_of(options: PullOptions) -> int | None:
    """Return the session in which a pull is made, None for none."""
    return options[2] if options[0] == Op.PULL_IN_SESSION else None


def pull_options_of(command: Command) -> PullOptions:
    """Return the request of a pull that is sent again for waiting clients; a poll is counted only once."""
    if command[OP] == Op.POLL:
        return (command[OP], *command[_OPTIONS : _OPTIONS + 2], True)
    return (command[OP], *command[_OPTIONS:])


def pull_again(command: Command) -> Command:
    """Return the same pull, sent again for waiting clients."""
    return pull_with(pull_options_of(command), command[QUEUE], command[COUNT])


def can_coalesce(command: Command, options: PullOptions) -> bool:
    """Return whether a pull from the same queue with this request may share the command.

    It may not if one of the pulls could return deliveries that the other one got.
    """
    op, *arguments = options
    if command[OP] != op or command[_OPTIONS:] != arguments:
        return False
    return bool(op == Op.PULL_LEASE or (op == Op.PULL_IN_SESSION and arguments[3] < 0))


def charge_and_known(command: Command) -> tuple[int, int]:
    """Return the deliveries that a pull charges, and the last number its client has received, -1 if it does not report one."""
    return (command[5], command[6]) if command[OP] == Op.PULL_IN_SESSION else (1, -1)


# --- settle -----------------------------------------------------------------------------------------------------------


def settle(op: Op, queue: bytes, numbers: list[int], *more: int) -> Command:
    """Return an ``ACK``, ``NACK``, ``EXTEND`` or ``PUT_BACK``, or with `more` a ``GIVE_BACK`` or ``EXTEND_BY``."""
    return [op, queue, numbers, *more]


def give_back(queue: bytes, numbers: list[int], place: Place, delay_us: int = 0) -> Command:
    """Return the command that returns deliveries to a place in line."""
    return [Op.GIVE_BACK, queue, numbers, int(place), delay_us]


def transaction(steps: list[Command], *owned: bytes) -> Command:
    """Return a transaction of the operations that the four functions below build."""
    return [Op.TRANSACTION, steps, *owned]


def push_step(queue: bytes, row: list[Any]) -> Command:
    """Return the step that stores a message."""
    return [Op.PUSH_TRAITS, queue, row]


def ack_step(queue: bytes, number: int) -> Command:
    """Return the step that acknowledges a delivery."""
    return [Op.ACK, queue, number]


def give_back_step(queue: bytes, number: int, place: Place, delay_us: int) -> Command:
    """Return the step that gives a message back."""
    return [Op.GIVE_BACK, queue, number, int(place), delay_us]


def extend_step(queue: bytes, number: int, lease_us: int) -> Command:
    """Return the step that restarts a lease, with the queue's timeout if `lease_us` is 0."""
    return [Op.EXTEND_BY, queue, number, lease_us]


# --- queues -----------------------------------------------------------------------------------------------------------


def create_for(queue: bytes, owner: bytes) -> Command:
    """Return the command that creates a queue for its owner."""
    return [Op.CREATE_FOR, queue, owner]


def create_indexed(queue: bytes, pairs: Pairs, owner: bytes) -> Command:
    """Return the command that creates a queue whose messages are found by id."""
    return [Op.CREATE_INDEXED, queue, pairs, owner]


def set_properties(queue: bytes, pairs: Pairs, *, only_unset: bool = False) -> Command:
    """Return the command that sets some properties, or only those that are unset."""
    return [Op.SET_PROPERTIES, queue, pairs, True] if only_unset else [Op.SET_PROPERTIES, queue, pairs]


def clear_properties(queue: bytes) -> Command:
    """Return the command that clears a queue's own properties."""
    return [Op.CLEAR_PROPERTIES, queue]


def set_defaults(rows: list[list[Any]]) -> Command:
    """Return the command that replaces the default rules."""
    return [Op.SET_DEFAULTS, rows]


def delete(queue: bytes) -> Command:
    """Return the command that deletes a queue."""
    return [Op.DELETE, queue]


def purge(queue: bytes) -> Command:
    """Return the command that removes messages; needs a limit, see `with_limit`."""
    return [Op.PURGE, queue]


def move(queue: bytes, destination: bytes) -> Command:
    """Return the command that moves messages; needs a limit."""
    return [Op.MOVE, queue, destination]


def withdraw(queue: bytes, label: bytes) -> Command:
    """Return the command that removes the messages with a label; needs a limit."""
    return [Op.WITHDRAW, queue, label]


def redrive(queue: bytes, destination: bytes | list[bytes], label: bytes) -> Command:
    """Return the command that sends messages back, those from a list of queues only if it is one; needs a limit."""
    return [Op.REDRIVE, queue, destination, label]


def with_limit(command: Command, limit: int) -> Command:
    """Return a repeatable command with this limit of messages."""
    return [*command, limit]


def suspend(queue: bytes, suspended: bool) -> Command:
    """Return the command that suspends or resumes a queue."""
    return [Op.SUSPEND, queue, suspended]


def bind(source: bytes, target: bytes) -> Command:
    """Return the command that binds a queue to another."""
    return [Op.BIND, source, target]


def unbind(source: bytes, target: bytes) -> Command:
    """Return the command that removes a binding."""
    return [Op.UNBIND, source, target]


# --- queues whose messages are addressed by id and tag
# ------------------------------------------------------------------


def update(queue: bytes, message: int, tag: int, hidden_us: int) -> Command:
    """Return the command that hides a message again."""
    return [Op.UPDATE, queue, message, tag, hidden_us]


def delete_polled(queue: bytes, pairs: Sequence[tuple[int, int]]) -> Command:
    """Return the command that deletes messages by id and tag."""
    return [Op.DELETE_POLLED, queue, pairs]


def suspend_endpoints(queue: bytes, given: list[bool | None]) -> Command:
    """Return the command that suspends or resumes kinds of requests."""
    return [Op.SUSPEND_ENDPOINTS, queue, given]


def throttle(queue: bytes, polls: int | None, window_us: int) -> Command:
    """Return the command that throttles polls."""
    return [Op.THROTTLE, queue, polls, window_us]


def set_api_key(digest: bytes, prefix: bytes) -> Command:
    """Return the command that adds an API key."""
    return [Op.SET_API_KEY, digest, prefix]


def delete_api_key(digest: bytes) -> Command:
    """Return the command that deletes an API key."""
    return [Op.DELETE_API_KEY, digest]


# --- sessions and locks -----------------------------------------------------------------------------------------------


def open_session(ttl_us: int, *owned: bytes) -> Command:
    """Return the command that opens a session."""
    return [Op.OPEN_SESSION, ttl_us, *owned]


def renew_session(session: int, *owned: bytes) -> Command:
    """Return the command that renews a session."""
    return [Op.RENEW_SESSION, session, *owned]


def end_session(session: int, *owned: bytes) -> Command:
    """Return the command that ends a session."""
    return [Op.END_SESSION, session, *owned]


def leave_queue(queue: bytes, session: int, *owned: bytes) -> Command:
    """Return the command that gives up a place in line."""
    return [Op.LEAVE_QUEUE, queue, session, *owned]


def lock(name: bytes, session: int, waits: bool, *owned: bytes) -> Command:
    """Return the command that acquires a lock."""
    return [Op.LOCK, name, session, waits, *owned]


def unlock(name: bytes, session: int, *owned: bytes) -> Command:
    """Return the command that releases a lock."""
    return [Op.UNLOCK, name, session, *owned]


# --- batch leases -----------------------------------------------------------------------------------------------------


def reserve(
    name: bytes, epoch: int, source: bytes | list[bytes], are_all: bool, count: int, lease_us: int, *used: bytes | int
) -> Command:
    """Return the command that leases a batch for an epoch from one or several queues; `used` are session and owner."""
    return [Op.RESERVE, name, epoch, source, are_all, count, lease_us, *used]


def claim(name: bytes, owner: bytes) -> Command:
    """Return the command that begins a session of a subscription."""
    return [Op.CLAIM, name, owner]


def renew(name: bytes, lease_us: int, session: int, from_epoch: int, owner: bytes) -> Command:
    """Return the command that renews the batches from an epoch on."""
    return [Op.RENEW, name, lease_us, session, from_epoch, owner]


def settle_batches(name: bytes, epoch: int, *used: bytes | int) -> Command:
    """Return the command that acknowledges batches up to an epoch."""
    return [Op.SETTLE_BATCHES, name, epoch, *used]


def abandon_batches(name: bytes, *used: bytes | int) -> Command:
    """Return the command that gives batches back."""
    return [Op.ABANDON_BATCHES, name, *used]


def delete_subscription(name: bytes, owner: bytes) -> Command:
    """Return the command that forgets a subscription; an empty owner selects those of all owners."""
    return [Op.DELETE_SUBSCRIPTION, name, owner]


# --- cluster ----------------------------------------------------------------------------------------------------------


def barrier() -> Command:
    """Return a command that changes nothing."""
    return [Op.BARRIER]


def found(salt: bytes) -> Command:
    """Return the command that sets the first salt of message ids."""
    return [Op.FOUND, salt]


def renew_salt(salt: bytes) -> Command:
    """Return the command that sets another salt of message ids."""
    return [Op.RENEW_SALT, salt]


def upgrade(version: int) -> Command:
    """Return the command that raises the machine version."""
    return [Op.UPGRADE, version]


def digest(token: bytes) -> Command:
    """Return the command that begins a comparison of replicas."""
    return [Op.DIGEST, token]


def set_time(unix_us: int) -> Command:
    """Return the command that reports the time of day."""
    return [Op.SET_TIME, unix_us]


def report_digest(token: bytes, member: bytes, own: bytes) -> Command:
    """Return the command that reports the digest of a member."""
    return [Op.REPORT_DIGEST, token, member, own]


def set_token(
    name: bytes, secret: bytes, role: int, pattern: bytes, times_us: tuple[int, int], without_admin: bool, owner: bytes
) -> Command:
    """Return the command that adds a token.

    `times_us` are its lifetime and the time of day; an empty owner makes the token a principal in its own right.
    """
    return [Op.SET_TOKEN, name, secret, role, pattern, times_us[0], without_admin, times_us[1], owner]


def delete_token(name: bytes, without_admin: bool) -> Command:
    """Return the command that deletes a token."""
    return [Op.DELETE_TOKEN, name, without_admin]
