"""The commands that the log carries and the shape of their results.

A command is a list ``[op, argument, ...]`` of integers, byte strings and lists, so that any encoding can carry it.
All names are byte strings. Delivery numbers stand for message ids; the node renders them.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum, IntFlag
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from ..messages.message import Message

__all__ = [
    "PULLS",
    "Command",
    "Compile",
    "Delivered",
    "Fault",
    "IncompatibleVersionError",
    "Match",
    "Op",
    "Place",
    "PushFlag",
    "RefusedError",
    "shown",
]

Command = list[Any]
Match = Callable[[bytes], bool]
Compile = Callable[[bytes], Match]
"""Compiles a regular expression to an unanchored search; raises ValueError if it is invalid. Must be deterministic."""

Delivered = tuple[bytes, int, int, "Message"]
"""Queue name, delivery number, deliveries that remain after this one, message."""


class Op(IntEnum):
    """Operation codes. They are part of the log's format: never renumber."""

    PUSH = 1  # queue, content type or None, [content], producer or None, first producer sequence, owner -> [flag]
    PUSH_ITEMS = 2  # queue, [[content, content type or None, [[name, value]], key or None]], owner -> [flag]
    PULL = 3  # queue, count -> [Delivered], or None: only exhausted messages were met, as many as one command may drop
    ACK = 5  # queue, [delivery number] -> [bool], or None if the queue does not exist
    NACK = 6  # as ACK
    EXTEND = 7  # as ACK
    PUT_BACK = 8  # as ACK
    SET_PROPERTIES = 10  # queue, [[name, value]][, only unset ones] -> True
    CLEAR_PROPERTIES = 11  # queue -> True
    DELETE = 12  # queue -> whether it existed
    SET_DEFAULTS = 13  # [[pattern, [[name, value]]]] -> True
    BARRIER = 14  # -> True
    FOUND = 15  # salt of message ids, 10 bytes -> True; only the first one counts
    UPGRADE = 16  # machine version -> the version from now on, which never falls
    # subscription, epoch, queue or [queue], whether they are all, count, lease us, session, owner -> Reserved
    RESERVE = 17
    RENEW = 18  # subscription, lease us, session, first epoch, owner -> (number of live batches, epoch to continue with or 0)
    SETTLE_BATCHES = 19  # subscription, epoch, session, owner -> ([expired epoch], whether to repeat)
    ABANDON_BATCHES = 20  # subscription, session, owner -> whether to repeat
    PURGE = (
        22  # queue, limit (0: the whole line) -> how many messages were removed, or None if the queue does not exist
    )
    MOVE = 23  # queue, destination, limit -> how many messages were moved, or None if the queue does not exist
    SUSPEND = 24  # queue, whether to suspend or to resume -> True, or None if the queue does not exist
    # name, SHA-256 of the secret, role, pattern, lifetime us or 0, whether without admin, time of day us, principal
    # or empty if it is its own -> TokenResult
    SET_TOKEN = 25
    DELETE_TOKEN = 26  # name, whether without admin -> TokenResult
    # queue, [[content, content type or None, headers, traits]], job, stream, first position, note, whether done,
    # owner [, epoch, run] -> [flag], empty for a repeat
    PUSH_MARKED = 27
    END_JOBS = 28  # [job], owner -> number of marks that they had
    BEGIN_EPOCH = 44  # job, epoch, run, seed, owner -> 0 begun, 1 must be repeated, 2 finished before
    FINISH_EPOCH = 45  # job, epoch, run, rows, sum of their digests, owner -> True
    CLAIM = 29  # subscription, owner -> session
    DELETE_SUBSCRIPTION = 30  # subscription, owner or empty for any -> whether to repeat, or None if it is unknown
    PULL_FIRST = 40  # [queue], count -> as PULL, from the one of these queues whose message has been due longest
    PUSH_EACH = 41  # [queue], item as in PUSH_ITEMS -> [(queue, flag)] of those queues that exist
    CREATE_FOR = 43  # queue, owner -> True; makes the queue for its owner unless it exists
    RENEW_SALT = 50  # another salt of message ids, 10 bytes -> True
    DIGEST = 51  # token -> digest of the state's counts; changes nothing
    REPORT_DIGEST = 52  # token, member, its digest -> True; informs the nodes, changes nothing
    SET_TIME = 53  # Unix time us -> True
    # queue, [[content, content type or None, headers, key or None, traits]], owner -> [(flag, sequence)], all or
    # nothing; traits: [delay us or -1, due us or 0, ttl us or 0, priority, label, group], or [] for none of them. A
    # bare body in place of a row has no content type, headers or key, and the traits of the row before. If a producer
    # and the number of the first message follow the owner, each message is stored once by its number
    PUSH_TRAITS = 60
    PULL_LEASE = 61  # queue, count, lease us or 0 for the queue's timeout, whether to settle at once -> as PULL
    GIVE_BACK = 62  # queue, [delivery number], place, delay us or -1 for the queue's own -> as NACK
    EXTEND_BY = 63  # queue, [delivery number], lease us -> as EXTEND
    WITHDRAW = 64  # queue, label, limit -> how many waiting messages were removed, or None if there is no such queue
    # queue, destination, empty for where they came from, or list of queues of which the next must come from one,
    # label or empty for all, limit -> number of messages sent back, or None if there is no such queue
    REDRIVE = 65
    BIND = 66  # source, target -> whether it is new; creates the target, and the source if needed
    UNBIND = 67  # source, target -> whether there was a binding
    TRANSACTION = 68  # [[op, queue, ...]], owner -> [result], or Conflict; see `Transactions`
    OPEN_SESSION = 70  # time to live us, owner -> number of the session
    RENEW_SESSION = 71  # session, owner -> whether it is alive
    END_SESSION = 72  # session, owner -> whether it was alive
    PULL_IN_SESSION = 73  # queue, count, lease us or 0, session, charge, last number known or -1, owner -> as PULL
    LEAVE_QUEUE = 74  # queue, session, owner -> whether it was in line, or None: must be repeated
    LOCK = 75  # name, session, whether to wait in line, owner -> fencing token, 0 if it does not have the lock
    UNLOCK = 76  # name, session, owner -> whether it held the lock or waited for it
    PUSH_OR_WAIT = 77  # queue, rows as in PUSH_TRAITS, wait us, owner -> as PUSH_TRAITS, or Waits
    CANCEL_PUSH = 78  # ticket, owner -> whether the push was waiting
    CREATE_INDEXED = 100  # queue, [[property, value]], owner -> whether it is new; its messages are found by id
    PUSH_EXISTING = 101  # as PUSH_TRAITS, into a queue that exists
    POLL = 102  # queue, count, hidden us, whether to take hidden ones, whether it was counted -> as PULL
    UPDATE = 103  # queue, message sequence, tag, hidden us -> number from which its new tag derives, None if it is gone
    DELETE_POLLED = 104  # queue, [(message sequence, tag)] -> [bool]
    # queue or empty for all, [whether to suspend delete, poll, push, update; None as before] -> [the values now]
    SUSPEND_ENDPOINTS = 105
    THROTTLE = 106  # queue or empty for all together, most polls or None, window us -> True
    SET_API_KEY = 107  # digest of a key, prefix of queue names -> True
    DELETE_API_KEY = 108  # digest of a key -> whether it existed


PULLS = frozenset((Op.PULL, Op.PULL_FIRST, Op.PULL_LEASE, Op.PULL_IN_SESSION, Op.POLL))
"""Operations whose result is a list of deliveries."""


class PushFlag(IntFlag):
    """The outcome of a pushed message."""

    STORED = 0
    WINDOW_OPENED = 1
    WINDOW_JOINED = 2
    REPLAYED = 4  # added to the flag of the push that first used the key; nothing was stored
    FULL = 8  # not stored: the queue is full
    OVERSIZED = 16  # not stored: the body exceeds the queue's limit


class Place(IntEnum):
    """The place to which a message is given back. Part of the log's format."""

    TAIL = 0
    KEEP = 1
    HEAD = 2


class Fault(NamedTuple):
    """The result of a command that could not be carried out.

    Attributes:
        code: the error code for clients if the command was understood and refused, with nothing of it applied; empty
            if the
            command is broken, in which case its effect is undefined.
    """

    reason: str
    code: str = ""


class RefusedError(Exception):
    """Raised by a command before it has changed anything; its result is a `Fault` with this code and reason."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


def shown(name: bytes) -> str:
    """Return a name as error texts quote it."""
    return repr(name.decode("utf-8", "backslashreplace"))


class IncompatibleVersionError(RuntimeError):
    """The log requires a machine version that this program does not have.

    Apart from running out of memory and losing a page, the one error that applying a batch raises: a replica that
    continued would diverge from those that understood the command.
    """
