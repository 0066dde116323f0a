"""Pushes. Every public method is one command of the state machine."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from typing import Any

from ..dedup.attempts import attempt_key
from ..log import commands as log
from ..log.items import Item, checked_item
from ..log.results import PushFlag
from ..messages.message import PLAIN_META, Meta
from ..owners.quotas import checked_owner
from ..queue.queue import Queue
from ..routing.admission import COPIES_MAX, PLAIN_PUSH, TOO_MANY_COPIES, Push, attributes_kept
from ..state.named_queues import named_queues
from ..state.state import ATTEMPT_US, REMEMBER_US, State
from .checks import Row, checked_row, checked_rows
from .numbered_pushes import checked_numbers, store_once
from .polls import PollCommands
from .push_plan import FLAG_BITS, PushPlan, store_item
from .waiting_pushes import WaitingPushCommands, Waits

__all__ = ["PushCommands"]

_SEQUENCES = (list, tuple)
_ONLY_BYTES = {bytes}

Stored = list[tuple[int, int]]
"""Flag and sequence of each message."""


class PushCommands:
    """The commands.

    Args:
        polls: tells whether pushes to a queue are suspended.
        waiting: takes pushes that wait for room.
    """

    def __init__(self, state: State, polls: PollCommands, waiting: WaitingPushCommands) -> None:
        self._state = state
        self._polls = polls
        self._waiting = waiting
        self._last_meta: Meta = PLAIN_META

    # --- bare bodies ----------------------------------------------------------------------------------------------

    def push(self, command: log.Push) -> list[int]:
        """Store bare bodies.

        Raises:
            ValueError: a field is malformed.
        """
        contents, content_type, producer = command.contents, command.content_type, command.producer
        if type(contents) not in _SEQUENCES or not set(map(type, contents)) <= _ONLY_BYTES:
            raise ValueError("bodies must be bytes")
        if content_type is not None and type(content_type) is not bytes:
            raise ValueError("a content type must be bytes or None")
        meta = (content_type, b"")
        state = self._state
        if producer is None:
            return state.store(state.queue(command.queue), meta, contents)
        numbers = checked_numbers(command.owner, producer, command.first)
        queue = state.queue(command.queue)
        duplicates = state.producers.admit(*numbers, len(contents), state.now_us)
        state.expiry.at(state.now_us + REMEMBER_US)
        if not duplicates and not queue.special:
            return state.store(queue, meta, contents)
        return self._push_again(queue, meta, contents, numbers, duplicates)

    def _push_again(
        self, queue: Queue, meta: Meta, contents: list[bytes], numbers: tuple[bytes, bytes, int], duplicates: int
    ) -> list[int]:
        """Store new pushes and those refused before; record those refused now."""
        state, refused = self._state, self._state.producers.refused
        owner, producer, first = numbers
        flags: list[int] = [0] * duplicates
        again = refused.among(owner, producer, first, duplicates) if refused else []
        for sequence in again:
            flags[sequence - first] = state.store(queue, meta, [contents[sequence - first]])[0]
            if flags[sequence - first] < PushFlag.FULL:
                refused.stored(owner, producer, sequence)
        fresh = state.store(queue, meta, contents[duplicates:])
        for sequence, flag in enumerate(fresh, first + duplicates):
            if flag >= PushFlag.FULL:
                refused.note(owner, producer, sequence)
        return flags + fresh

    def push_each(self, command: log.PushEach) -> list[tuple[bytes, int]]:
        """Store a message in each of these queues that exists, in the order given."""
        item = checked_item(*command.item)
        flags: list[tuple[bytes, int]] = []
        copies = 0
        for queue in named_queues(self._state, command.queues):
            copies += self._state.admission.reach(queue)
            flag = store_item(self._state, queue, item) if copies <= COPIES_MAX else TOO_MANY_COPIES
            flags.append((queue.name, flag))
        return flags

    # --- messages with options ------------------------------------------------------------------------------------

    def push_rows(self, command: log.PushRows) -> Stored | Waits:
        """Store messages, all of them or none, or let the push wait for room.

        Messages of a producer have no keys; their numbers show which of them are stored already.

        Raises:
            ValueError: a field is malformed.
            RefusedError: ``full``, ``too_large``, ``key_reused``, ``quota_exceeded``, and for a queue that must exist
                ``queue_not_found``, ``suspended``; nothing is stored. The first two are flags if the messages have
                numbers.
        """
        if command.must_exist:
            self._polls.check_push(command.queue)
        if command.wait_us:
            return self._waiting.push(command)
        owner, name = checked_owner(command.owner), command.queue
        alike = _pushed_alike(command.rows) if command.producer is None else None
        if alike is not None:
            return self._push_alike(name, *alike, owner)
        rows = checked_rows(command.rows)
        if command.producer is None:
            return self._store(self._state.queue(name), rows, owner)
        numbers = checked_numbers(owner, command.producer, command.first)
        if any(item.key is not None for item, _ in rows):
            raise ValueError("messages under numbers have no keys")
        queue = self._state.queue(name)

        def store(positions: Sequence[int]) -> Stored:
            return self._store(queue, [rows[position] for position in positions], owner)

        return store_once(self._state, numbers, len(rows), store)

    def _push_alike(self, name: bytes, bodies: Sequence[bytes], push: Push, owner: bytes) -> Stored:
        """Store bodies with equal options and without content type, attributes and keys: the usual batch, and fast."""
        queue, admission = self._state.queue(name), self._state.admission
        if not admission.takes_all(queue, bodies):
            return self._store(queue, [(Item(body), push) for body in bodies], owner)
        return _all_stored(admission.store_alike(queue, bodies, push), len(bodies))

    def _store(self, queue: Queue, rows: list[Row], owner: bytes) -> Stored:
        admission = self._state.admission
        if all(item.key is None for item, _ in rows) and admission.takes_all(queue, [item.content for item, _ in rows]):
            return _all_stored(admission.store_all(queue, rows), len(rows))
        plan = PushPlan(self._state, owner)
        for item, push in rows:
            plan.add(queue, item, push)
        return [plan.store(queue, item, push) for item, push in rows]

    # --- attempts -------------------------------------------------------------------------------------------------

    def push_attempts(self, command: log.PushAttempts) -> Stored:
        """Store messages, each unless the queue refuses it or its attempt is known.

        Raises:
            ValueError: a field is malformed; nothing is stored.
            RefusedError: ``queue_not_found``, ``suspended``; nothing is stored.
        """
        name, rows, owner = command.queue, checked_rows(command.rows), checked_owner(command.owner)
        attempts = [None if item.key is None else attempt_key(name, item.key) for item, _push in rows]
        self._polls.check_push(name)
        queue = self._state.queue(name)
        reach = self._state.admission.reach(queue)
        most = min(len(rows), COPIES_MAX // reach)
        # Copies take sequences too, so only those of messages without copies follow each other.
        run_max = 1 if reach > 1 else most
        stored: Stored = []
        while (start := len(stored)) < most:
            known = self._known(queue, owner, attempts[start])
            if known is not None:
                stored.append(known)
                continue
            end = self._end_of_run(rows, attempts, owner, start, min(most, start + run_max))
            stored += self._store_run(queue, rows[start:end], attempts[start:end], owner)
        queue.counters.refused_total += len(rows) - most
        return stored + [(TOO_MANY_COPIES, 0)] * (len(rows) - most)

    def _known(self, queue: Queue, owner: bytes, attempt: bytes | None) -> tuple[int, int] | None:
        """Return the result of the first push with an attempt, None if it is new."""
        known = None if attempt is None else self._state.sent.find(owner, attempt, self._state.now_us)
        if known is None:
            return None
        queue.counters.deduplicated_total += 1
        return known[0] % (1 << FLAG_BITS) | PushFlag.REPLAYED, known[0] >> FLAG_BITS

    def _end_of_run(
        self, rows: Sequence[Row], attempts: Sequence[bytes | None], owner: bytes, start: int, most: int
    ) -> int:
        """Return the end of the run of rows that, beside their bodies, are like the first, with attempts that are all new."""
        find, now_us = self._state.sent.find, self._state.now_us
        first, push = rows[start]
        alike = first.content_type, first.attributes, first.headers, push
        seen = {attempts[start]}
        for place in range(start + 1, most):
            (item, options), attempt = rows[place], attempts[place]
            if (item.content_type, item.attributes, item.headers, options) != alike:
                return place
            if attempt is not None and (attempt in seen or find(owner, attempt, now_us) is not None):
                return place
            seen.add(attempt)
        return most

    def _store_run(self, queue: Queue, rows: Sequence[Row], attempts: Sequence[bytes | None], owner: bytes) -> Stored:
        """Store messages that differ in their bodies only, and remember their attempts."""
        state, (first, push) = self._state, rows[0]
        meta = self._shared((first.content_type, attributes_kept(queue, first)))
        sequence = state.last_sequence
        stored: Stored = []
        for flag in state.store(queue, meta, [item.content for item, _push in rows], push):
            sequence += flag < PushFlag.FULL
            stored.append((flag, sequence) if flag < PushFlag.FULL else (flag, 0))
        ends_us = state.now_us + ATTEMPT_US
        results = [
            (attempt, (int(flag) | number << FLAG_BITS,))
            for attempt, (flag, number) in zip(attempts, stored, strict=True)
            if attempt is not None and number
        ]
        if results:
            state.sent.remember(owner, results, ends_us)
            state.expiry.at(ends_us)
        return stored

    def _shared(self, meta: Meta) -> Meta:
        """Return the last one if it is equal: messages that share one take less memory."""
        if meta != self._last_meta:
            self._last_meta = meta
        return self._last_meta


def _all_stored(first: int, count: int) -> Stored:
    return list(zip(repeat(PushFlag.STORED), range(first, first + count), strict=False))


def _pushed_alike(rows: Sequence[Any]) -> tuple[list[bytes], Push] | None:
    """Return the bodies and their options, if all but the first are bare and that one has nothing but options.

    Raises:
        ValueError: the first is malformed.
    """
    push, given = PLAIN_PUSH, rows
    if rows and not isinstance(rows[0], bytes):
        item, push = checked_row(rows[0])
        if not item.is_bare():
            return None
        given = [item.content, *rows[1:]]
    bodies = [row for row in given if isinstance(row, bytes)]
    return (bodies, push) if len(bodies) == len(given) else None
