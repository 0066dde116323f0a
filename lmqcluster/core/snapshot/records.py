"""The records of a snapshot, and their conversion to a machine.

The first record is ``["lmqcluster", format version, machine version, ...]``, the last ``["end", number of records
before it]``. In between are the tables (sessions, producers, keys, endings, batches, tokens) in rows, and the queues
by name, each followed by its messages in the order of their lines. Messages come in slices of columns, see `columns`:

    [line, ... columns ...]
    ["leased", [delivery number], ... the same columns, with [ready_us] behind the contents ...]

The line is "ready" or "delayed", and for messages with traits "waiting", "scheduled", "held" or "fair". A queue whose
messages are found by id has a record "index", and rows of "tags": [sequence, number of the latest delivery or
update, negative if it was returned again]. One whose groups are or were fair has a record "fair groups": [last turn,
era], and rows of "fair group": [group, turn, time at which its bucket is full, era of the bucket, whether it rests].

A queue with gathered bodies, see `bodies`, has them before its messages. These then have a number instead of a body:
its place among all bodies in these records.

    "body pages": rows of [page, first sequence, [size of each body]]
    "bodies":     first sequence, [bodies], if there is no page
    "body tail":  priority, due time as in `Key`, first sequence, [bodies]; no priority for those that are gathered again

A queue with a backlog has a record "backlog" behind its ready messages, then the chunks, then the ready messages of
the tail. A chunk is a record "chunk" of columns, or a row of "pages": [page, number of messages, number of bodies,
their bytes, lowest sequence, highest sequence].
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import zip_longest
from typing import Any

from ..handlers.schedules import schedule_of
from ..log.items import checked_item
from ..messages.columns import as_bytes, as_content, as_ints, expanded_metas, set_columns
from ..messages.message import Content, Identity, Message, Meta, Origin, RichMessage, Traits
from ..owners.quotas import checked_owner
from ..queue.annotations import annotated, checked_annotations
from ..queue.counters import COUNTERS
from ..queue.paged_tail import Chunk, PagedTail
from ..queue.properties import Rule, checked_properties
from ..queue.queue import Queue
from ..routing.admission import Push
from ..routing.move_tasks import MoveTask, TaskStatus
from ..state.state import State
from .loaded_bodies import LoadedBodies
from .view import FORMAT

__all__ = ["Restoration", "with_salt"]

_ONLY_BYTES = {bytes}


def with_salt(record: list[Any], salt: bytes) -> list[Any]:
    """Return the record with another salt of message ids in it, if it is the one that holds the salt."""
    return [*record[:4], salt, *record[5:]] if record[0] in ("lmqcluster", b"lmqcluster") else record


class Restoration:
    """Fills an empty state, record by record.

    Attributes:
        pages: the pages that the records name.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self.pages: list[bytes] = []
        self._count = 0
        self._ended = False
        self._failed = False
        self._queue: Queue | None = None
        self._buckets: list[Callable[[], None]] = []
        self._bodies: LoadedBodies | None = None
        # Sequence of the message that is the current queue's window, until it is found.
        self._window = 0
        self._last_delayed = (-(1 << 64), 0)
        self._handlers: dict[str, Callable[..., None]] = {
            "lmqcluster": self._take_header,
            "sessions": self._take_sessions,
            "producers": self._take_producers,
            "refused": self._take_refused,
            "keys": self._take_keys,
            "exact keys": self._take_exact_keys,
            "sent": lambda rows: self._state.sent.load(_typed(rows, (bytes, int, bytes, list))),
            "received": lambda rows: self._state.received.load(_typed(rows, (bytes, int, bytes, list))),
            "endings": self._take_past_deliveries,
            "batches": self._take_batches,
            "tokens": self._take_tokens,
            "jobs": self._take_jobs,
            "unclaimed": self._take_unclaimed,
            "marks": self._take_marks,
            "queue": self._take_queue,
            "bindings": self._take_bindings,
            "poll limits": self._take_poll_limits,
            "api keys": self._take_api_keys,
            "times": self._take_times,
            "schedule clock": self._take_schedule_clock,
            "schedules": self._take_schedules,
            "move tasks": self._take_move_tasks,
            "index": self._take_index,
            "tags": self._take_tags,
            "fair groups": self._take_fair_groups,
            "fair group": self._take_fair_group,
            "client_sessions": self._take_client_sessions,
            "session_leases": self._take_session_leases,
            "claims": self._take_claims,
            "locks": self._take_locks,
            "lock_tokens": self._take_lock_tokens,
            "waiting_pushes": self._take_waiting_pushes,
            "gaining": self._take_gaining,
            **self._message_handlers(),
            "end": self._take_end,
        }

    def _message_handlers(self) -> dict[str, Callable[..., None]]:
        return {
            "waiting": lambda *columns: self._take_rich("waiting", *columns),
            "scheduled": lambda *columns: self._take_rich("scheduled", *columns),
            "held": lambda *columns: self._take_rich("held", *columns),
            "fair": lambda *columns: self._take_rich("fair", *columns),
            "body pages": self._take_body_pages,
            "bodies": self._take_bodies,
            "body tail": self._take_body_tail,
            "ready": self._take_ready,
            "backlog": self._take_backlog,
            "chunk": self._take_chunk,
            "pages": self._take_pages,
            "delayed": self._take_delayed,
            "leased": self._take_leased,
        }

    def take(self, record: list[Any]) -> None:
        """Take the next record.

        Raises:
            ValueError: it is malformed or out of place; the state must be discarded.
        """
        try:
            self._take(record)
        except (TypeError, LookupError, AttributeError, ArithmeticError) as exc:
            self._failed = True
            raise ValueError(f"the snapshot is malformed: {type(exc).__name__}: {exc}") from exc
        except ValueError:
            self._failed = True
            raise

    def finish(self) -> State:
        """Return the state, after the last record.

        Raises:
            ValueError: the snapshot is incomplete, or a record was refused.
        """
        if self._failed or not self._ended:
            raise ValueError("the snapshot is cut off" if not self._failed else "the snapshot is malformed")
        self._state.waiting_pushes.loaded()
        self._restore_buckets()
        self._state.expiry.look()
        return self._state

    def _restore_buckets(self) -> None:
        """Restore what a change of a rate resets: a queue inherits its rate from a parent that may come after it."""
        for restore in self._buckets:
            restore()

    def _take(self, record: list[Any]) -> None:
        kind = record[0].decode() if isinstance(record[0], bytes) else record[0]
        if self._ended:
            raise ValueError("the snapshot goes on behind its end")
        if (kind == "lmqcluster") != (self._count == 0):
            raise ValueError("the snapshot does not begin with its header")
        handler = self._handlers.get(kind)
        if handler is None:
            raise ValueError(f"the snapshot has an unknown record {kind!r}")
        handler(*record[1:])
        self._count += 1

    def _take_end(self, count: int) -> None:
        if count != self._count:
            raise ValueError(f"the snapshot should have {count} records but has {self._count}")
        self._end_queue()
        self._ended = True

    # --- tables ---------------------------------------------------------------------------------------------------

    def _take_header(self, version: int, *fields: Any) -> None:
        if version != FORMAT:
            raise ValueError(f"the snapshot has format {version}, this program reads {FORMAT}")
        machine_version, now_us, salt, last_delivery, last_sequence, floor, rules, retired, more, spreading = fields
        as_ints([machine_version, now_us, last_delivery, last_sequence, floor, *retired])
        state = self._state
        if machine_version > state.VERSION_MAX:
            raise ValueError(
                f"this program is too old for the snapshot: it understands machine version {state.VERSION_MAX}, "
                f"the snapshot has {machine_version}"
            )
        if machine_version < 1 or type(salt) is not bytes:
            raise ValueError("the snapshot's header is malformed")
        state.version, state.now_us, state.salt = machine_version, now_us, salt
        state.last_delivery, state.last_sequence = last_delivery, last_sequence
        state.endings.floor = floor
        state.retired = dict(zip(COUNTERS, retired, strict=True))
        state.batches.last_session, *last_numbers = as_ints(more)
        state.sessions.last, state.locks.last_token, state.waiting_pushes.last = last_numbers[:3]
        state.deleted_total, state.aged_total, state.move_tasks.last = last_numbers[3:]
        if spreading:
            reached, before, current = spreading
            spreading = [as_bytes(reached), self._rules(before), [self._rules(one) for one in current]]
        state.defaults.load(self._rules(rules), spreading)

    def _rules(self, rows: list[Any]) -> list[Rule]:
        state = self._state
        return [
            Rule(as_bytes(pattern), tuple(checked_properties(pairs)), state.compile(pattern)) for pattern, pairs in rows
        ]

    def _take_sessions(self, rows: list[Any]) -> None:
        self._state.node_sequences.load(_typed(rows, (bytes, int, int)))

    def _take_producers(self, rows: list[Any]) -> None:
        self._state.producers.load(_typed(rows, (bytes, bytes, int, int)))

    def _take_refused(self, rows: list[Any]) -> None:
        self._state.producers.refused.load(_typed(rows, (bytes, bytes, list)))

    def _take_keys(self, rows: list[Any]) -> None:
        self._state.keys.load(_typed(rows, (int, bytes, bytes, bytes, int, bytes)))

    def _take_exact_keys(self, rows: list[Any]) -> None:
        self._state.keys.exact.load(_typed(rows, (int, bytes, bytes, int, bytes)))

    def _take_past_deliveries(self, rows: list[Any]) -> None:
        self._state.endings.load(_typed(rows, (int, int)))

    def _take_batches(self, rows: list[Any]) -> None:
        types = (bytes, bytes, int, int, int, int, int, int, list)
        self._state.batches.load(_typed(rows, types))

    def _take_tokens(self, rows: list[Any]) -> None:
        self._state.tokens.load(_typed(rows, (bytes, bytes, int, bytes, int, int, bytes, bytes)))

    def _take_jobs(self, rows: list[Any]) -> None:
        self._state.marks.load_jobs(_typed(rows, (bytes, bytes, int, list)))

    def _take_unclaimed(self, rows: list[Any]) -> None:
        self._state.marks.load_unclaimed(_typed(rows, (bytes, bytes, bool, bytes)))

    def _take_marks(self, rows: list[Any]) -> None:
        self._state.marks.load(_typed(rows, (bytes, bytes, bytes, int, int, bytes)))

    # --- queues ---------------------------------------------------------------------------------------------------

    def _take_queue(self, *columns: Any) -> None:
        name, own, window, counters, suspended, watched_us, owner, idle_us, *more = columns
        created_us, is_rich, full_ns, changed_us, annotations = more
        self._end_queue()
        if name in self._state.queues:
            raise ValueError(f"the snapshot has the queue {name!r} twice")
        queue = self._state.add(name, checked_owner(owner))
        if own:
            self._state.set_own(queue, dict(checked_properties(own)))
            self._state.refresh(queue)
        if annotations:
            self._state.annotate(queue, annotated({}, checked_annotations(annotations)))
        for counter, value in zip(COUNTERS, as_ints(counters), strict=True):
            setattr(queue.counters, counter, value)
        self._queue = queue
        self._window, flag, queue.watched_us, queue.idle_us = as_ints([window, suspended, watched_us, idle_us])
        queue.created_us, queue.changed_us = as_ints([created_us, changed_us])
        rich_flag, queue.limits.full_ns = as_ints([is_rich, full_ns])
        if full_ns:
            self._buckets.append(partial(setattr, queue.limits, "full_ns", full_ns))
        if rich_flag:
            queue.store.enriched()
        self._state.lease_watch.load(queue)
        self._state.idle.load(queue)
        queue.suspended = bool(flag)
        self._last_delayed = (-(1 << 64), 0)

    def _take_bindings(self, rows: list[Any]) -> None:
        for source, target in _typed(rows, (bytes, bytes)):
            self._state.bindings.bind(source, target)

    def _take_client_sessions(self, rows: list[Any]) -> None:
        self._state.sessions.load(_typed(rows, (int, bytes, int, int, int)))

    def _take_session_leases(self, rows: list[Any]) -> None:
        self._state.sessions.load_leases(_typed(rows, (int, list, list)))

    def _take_claims(self, rows: list[Any]) -> None:
        self._state.claims.load(_typed(rows, (bytes, int, bytes)))

    def _take_locks(self, rows: list[Any]) -> None:
        self._state.locks.load(_typed(rows, (bytes, int, bytes)))

    def _take_lock_tokens(self, rows: list[Any]) -> None:
        self._state.locks.load_tokens(_typed(rows, (bytes, int)))

    def _take_waiting_pushes(self, rows: list[Any]) -> None:
        self._state.waiting_pushes.load(
            (*row[:5], checked_item(row[10], *row[5:9]), Push(*row[9])) for row in map(tuple, rows)
        )

    def _take_gaining(self, rows: list[Any]) -> None:
        self._state.waiting_pushes.gaining.update(name for (name,) in _typed(rows, (bytes,)))

    def _take_poll_limits(self, rows: list[Any]) -> None:
        (row,) = rows
        self._state.poll_limits.load(*row)

    def _take_times(self, rows: list[Any]) -> None:
        self._state.times.load(_typed(rows, (int, int)))

    def _take_schedule_clock(self, rows: list[Any]) -> None:
        self._state.schedules.load_clock(_typed(rows, (bytes, int, int, int, int, list)))

    def _take_schedules(self, rows: list[Any]) -> None:
        self._state.schedules.load(schedule_of(row) for row in rows)

    def _take_move_tasks(self, rows: list[Any]) -> None:
        self._state.move_tasks.load(map(_move_task, rows))

    def _take_api_keys(self, rows: list[Any]) -> None:
        self._state.api_keys.load(_typed(rows, (bytes, bytes)))

    def _take_index(self, since: int, *limits: Any) -> None:
        index = self._state.index_messages(self._current()).index()
        (index.since,) = as_ints([since])
        index.limits.load(*limits)

    def _take_tags(self, rows: list[Any]) -> None:
        self._state.index_messages(self._current()).index().load(_typed(rows, (int, int)))

    def _take_fair_groups(self, last_turn: int, era: int) -> None:
        rich = self._current().store.enriched()
        fair = rich.fair_groups(())
        rich.configure(self._current().settings.options, ())
        fair.last_turn, fair.era = as_ints([last_turn, era])
        self._buckets.append(partial(setattr, fair, "era", era))

    def _take_fair_group(self, rows: list[Any]) -> None:
        fair = self._current().store.enriched().fair
        if fair is None:
            raise ValueError("the snapshot has rows of fair groups outside of them")
        fair.load(_typed(rows, (bytes, int, int, int, int)))

    def _take_rich(self, line: str, *columns: Any) -> None:
        queue = self._current()
        for message in self._messages(queue, *columns):
            if not isinstance(message, RichMessage):
                raise ValueError("a message in a line for those with traits has none")
            queue.store.enriched().load(line, message)

    def _take_ready(self, *columns: Any) -> None:
        queue = self._current()
        messages = self._messages(queue, *columns)
        if queue.store.backlog is None:
            queue.store.ready.extend(messages)
        else:
            queue.store.backlog.load(messages)

    def _take_backlog(self) -> None:
        queue = self._current()
        if queue.store.backlog is not None or not queue.store.ready:
            raise ValueError("a queue has two backlogs, or one with nothing before it")
        queue.store.backlog = PagedTail(queue.store.pager)

    def _backlog(self) -> PagedTail:
        backlog = self._current().store.backlog
        if backlog is None or backlog.tail:
            raise ValueError("the snapshot has a chunk outside of a backlog")
        return backlog

    def _take_chunk(self, *columns: Any) -> None:
        queue = self._current()
        self._backlog().join(Chunk.of(self._messages(queue, *columns)))

    def _take_pages(self, rows: list[Any]) -> None:
        queue = self._current()
        for page, *row in _typed(rows, (bytes, int, int, int, int, int)):
            count, bodies, body_bytes, low, high = row
            if min(row) < 0 or not 0 < count <= bodies or high > self._state.last_sequence or not page:
                raise ValueError("the row of a page is malformed")
            self._backlog().join(Chunk(None, page, (count, bodies, body_bytes, low, high)))
            queue.store.add_to_sums(bodies, body_bytes)
            self.pages.append(page)

    def _take_body_pages(self, rows: list[Any]) -> None:
        for page, first, sizes in _typed(rows, (bytes, int, list)):
            self._gathered().add_page(page, first, sizes)
            self.pages.append(page)

    def _take_bodies(self, first: int, bodies: list[bytes]) -> None:
        self._gathered().add(first, bodies)

    def _take_body_tail(self, priority: int | None, due: int, first: int, bodies: list[bytes]) -> None:
        self._gathered().add_tail(None if priority is None else (priority, due), first, bodies)

    def _gathered(self) -> LoadedBodies:
        if self._bodies is None:
            self._bodies = LoadedBodies(self._current().store.bodies_gathered())
        return self._bodies

    def _content(self, content: Any) -> Content:
        if type(content) is int and self._bodies is not None:
            return self._bodies.body(content)
        return as_content(content)

    def _take_delayed(self, *columns: Any) -> None:
        queue = self._current()
        for message in self._messages(queue, *columns):
            place = (message.due_us, message.sequence)
            if place <= self._last_delayed:
                raise ValueError("delayed messages are out of order")
            self._last_delayed = place
            # A sorted list is a heap.
            queue.store.delayed.append((*place, message))
            if message.sequence == self._window:
                queue.store.reopen_window(message)
                self._window = 0

    def _take_leased(self, numbers: list[int], *columns: Any) -> None:
        ready = columns[5]
        queue = self._current()
        messages = self._messages(queue, *columns[:5], *columns[6:])
        if not len(as_ints(numbers)) == len(as_ints(ready)) == len(messages):
            raise ValueError("the columns of a slice differ in length")
        for number in numbers:
            if not 0 < number <= self._state.last_delivery:
                raise ValueError("a delivery number was not given yet")
        if len(set(numbers)) < len(numbers) or not queue.store.leases.messages.keys().isdisjoint(numbers):
            raise ValueError("a delivery number comes twice")
        for message, ready_us in zip(messages, ready, strict=True):
            message.ready_us = ready_us
        queue.store.leases.load(numbers, messages)
        if queue.store.rich is not None:
            holds = [run[4] for run in columns[-1] for _ in range(run[0])]
            for message, flag in zip_longest(messages, holds):
                queue.store.rich.load_leased(message, holds=bool(flag))

    def _current(self) -> Queue:
        if self._queue is None:
            raise ValueError("the snapshot has messages before any queue")
        return self._queue

    def _end_queue(self) -> None:
        if self._queue is not None:
            rich = self._queue.store.rich
            if rich is not None and rich.fair is not None:
                rich.fair.loaded()
            self._state.timers.note(self._queue)
        if self._bodies is not None:
            self._bodies.end()
            self._bodies = None
        if self._window:
            raise ValueError("the message of an accumulation window is missing")

    def _messages(self, queue: Queue, *columns: Any) -> list[Message]:
        sequences, due, remaining, metas, contents, pushed, delivered, traits = columns
        count = len(as_ints(sequences))
        if not count == len(as_ints(due)) == len(as_ints(remaining)) == len(contents) == sum(run[0] for run in metas):
            raise ValueError("the columns of a slice differ in length")
        if max(sequences, default=0) > self._state.last_sequence:
            raise ValueError("a message has a sequence that was not given yet")
        is_plain = set(map(type, contents)) <= _ONLY_BYTES
        if not is_plain:
            contents = [self._content(content) for content in contents]
        shared = (sequences, due, remaining, expanded_metas(metas), contents)
        messages = list(map(_message, *shared, _expanded_traits(traits))) if traits else list(map(Message, *shared))
        if len(messages) != count:
            raise ValueError("the columns of a slice differ in length")
        set_columns(messages, pushed, delivered)
        if is_plain:
            attribute_bytes = sum(run[0] * len(run[2]) for run in metas)
            queue.store.add_to_sums(count, sum(map(len, contents)) + attribute_bytes)
        else:
            queue.store.count(messages)
        for message in messages if traits else ():
            if isinstance(message, RichMessage):
                queue.store.enriched().on_added(message)
        return messages


def _message(
    sequence: int, due_us: int, remaining: int, meta: Meta, content: Content, traits: tuple[Traits, int, int] | None
) -> Message:
    if traits is None:
        return Message(sequence, due_us, remaining, meta, content)
    given, place_us, first_us = traits
    message = RichMessage(sequence, due_us, remaining, meta, content, given)
    message.first_us = first_us
    if place_us:
        message.place_us = place_us
    return message


def _expanded_traits(runs: list[Any]) -> list[tuple[Traits, int, int] | None]:
    result: list[tuple[Traits, int, int] | None] = []
    for count, row, place_us, first_us, holds in runs:
        as_ints([place_us, first_us, holds])
        result += [None if row is None else (_traits(*row), place_us, first_us)] * count
    return result


def _traits(priority: int, expires_us: int, label: bytes, group: bytes, origin: list[Any] | None) -> Traits:
    as_ints([priority, expires_us])
    return Traits(priority, expires_us, as_bytes(label), as_bytes(group), None if origin is None else _origin(*origin))


def _origin(*fields: Any) -> Origin:
    *present, identity = fields
    _typed([tuple(present)], (bytes, bytes, int, int, int, int))
    return Origin._make((*present, Identity._make(as_ints(identity))))


def _move_task(row: list[Any]) -> MoveTask:
    number, source, destination, origins, rate, to_move, started_us, status, moved, failure, steps = row
    as_ints([number, rate, to_move, started_us, moved, steps])
    names = None if origins is None else tuple(map(as_bytes, origins))
    task = MoveTask(number, as_bytes(source), as_bytes(destination), names, rate, to_move, started_us)
    return task._replace(status=TaskStatus(status), moved=moved, failure=as_bytes(failure), steps=steps)


def _typed(rows: list[Any], types: tuple[type, ...]) -> list[Any]:
    for row in rows:
        if tuple(map(type, row)) != types:
            raise ValueError("a row of a table is malformed")
    return rows
