"""The event journal of a node: the events of messages as gzip JSON lines, for statistics and audits.

It is off unless ``event_journal`` names a folder. A node writes the events of the commands that it proposed itself. So each event
is in the journal of exactly one node, the one that the client was connected to, and the journals of all nodes together are
complete. `files` describes the location, names and rotation of files, and how to read them after a crash.

Every line is a JSON object (ASCII). Fields of all events:

- ``time``: log time of the batch of the command, ISO 8601 in UTC with microseconds (``2026-11-03T14:15:16.123456Z``).
  It is the cluster's time, equal on all nodes, and never decreases. Events of one batch have the same time; pushes come first,
  then all others in order of execution.
- ``event``: ``push``, ``pull``, ``ack``, ``nack``, ``extend``, ``put_back``, ``delete``, ``purge``,
  ``withdraw``, ``move`` or ``redrive``. A transaction has the events of its operations.
- ``queue``: name of the queue; bytes that are not UTF-8 are written ``\\xNN``.
- ``node``: name of the writing node (option ``name``).

``push``: messages were stored. One line per queue and batch, since a batch may contain tens of thousands.

- ``count``: number of messages. Messages that had been stored before (a producer's retry, or a repeated idempotency key) do not
  count, so the sum over all lines is the number of arrivals.
- ``bytes``: total size of their bodies as stored (bodies from MessagePack-RPC are stored packed). If some of the pushed messages
  had been stored before, it is the size of the last ``count`` bodies of the batch. A push that waited for room in a full queue
  is in the journal of the node whose batch made room, with that batch.
- ``windows``: only if the queue accumulates: number of accumulation windows opened, each of which becomes a compound message.

``pull``: a message was delivered. One line per delivery, including those that the node took for a waiting pull.

- ``id``: message id of the delivery as clients see it. Unique; it joins the delivery to its ``ack``, ``nack`` and so on.
- ``sequence``: number of the message in order of arrival over all queues; the same for all deliveries of the message.
- ``wait_us``: how long it had been due, in microseconds: since its push; for a compound message since the end of its window;
  after a nack since the nack; after a lease expiry since the expiry.
- ``retry_remaining``: number of deliveries left. If a delivery with 0 is not acknowledged, the message is dropped.
- ``redelivery``: whether the message was delivered before, that is, charged more deliveries than this one. It is derived from
  the queue's ``retry``, so it is wrong for messages older than a change of that property; to be sure, count the pulls of a
  ``sequence``.
- ``parts``: only for a compound message: number of messages pushed into it.
- ``subscription``, ``epoch``: only for a batch lease: its subscription and epoch. Each message that a reservation took has a
  line; reads of it are not events.

``ack``, ``nack``, ``extend``, ``put_back``: a command settled or extended a delivery. One line per named delivery.

- ``id``: id of the delivery; null if it is not an id of this cluster. The queue is the one named with it.
- ``ok``: whether there was a lease; false if it had expired or was settled before, or if the queue does not exist.
- ``subscription``, ``epoch``: only for ``ack`` and ``put_back``, if a batch lease was settled or abandoned: its subscription
  and epoch. Renewals of batch leases are not events.

``put_back`` undoes a delivery that no client received, mostly by the node itself because a client had disconnected. Do not count
the pull with this ``id`` as a delivery; the message's waiting time continued.

``delete``: a queue was deleted, with its messages.

- ``ok``: whether it existed.

``purge``: messages of a queue were removed. ``withdraw``: messages with a label were removed. ``move``: messages of a queue were
moved to another, where they have new sequence numbers; they do not count as pushes. ``redrive``: dead letters were moved so.
One line per at most 10,000 messages.

- ``count``: number of messages.
- ``to``: only for ``move`` and ``redrive``: name of the target queue; null if each message went back to the queue it came from.

Lease expiry, also at the end of a session, and the drop of a message after its last delivery are not commands and have no line.
They show as a pull with ``redelivery`` whose predecessor has neither nack nor put_back, and as a last pull without an ack.

Events can be missing, but are never duplicated. Missing can be: if a node is killed, up to a second of events and those of its
commands in flight; the commands of a node that was disconnected for so long that it received a snapshot; and events dropped
because the disk was full or too slow. The metrics ``lmq_events_dropped_total`` and ``lmq_event_journal_errors_total`` count the
dropped ones, and the log reports them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from ...core import Applied, Fault, Machine, PushFlag, Queue
from ...core.handlers.transactions import single_commands
from ...core.handlers.waiting_pushes import Waits
from ...core.log.commands import (
    PULLS,
    AbandonBatches,
    Ack,
    Command,
    Delete,
    Encoded,
    Extend,
    Move,
    Nack,
    Purge,
    Push,
    PushAttempts,
    PushEach,
    PushRows,
    PushStream,
    Redrive,
    Reserve,
    SettleBatches,
    decode,
)
from ...core.log.notices import Pushed as StoredLater
from ...core.log.results import Delivered
from ...wire.ids import ReceiptFormat
from .batches import BatchWatch, Change, Run
from .files import EventFiles
from .lines import Answered, Batch, Deleted, Event, Moved, Pulled, Purged, Pushed, Record
from .writer import EventWriter

__all__ = ["EventJournal"]

_NOTED_SPARE: Final = 1_000
_OF_BATCHES: Final = frozenset(one.op for one in (Reserve, SettleBatches, AbandonBatches))
"""Codes of the commands that change batch leases. Others are not decoded on nodes that did not propose them."""


class EventJournal:
    """Extracts events from applied commands and passes them to a writer thread.

    Args:
        folder: created if absent.
        node: the node's name.
        bytes_max: size at which a new file starts.
        files_max: number of files to keep.

    Raises:
        OSError: the folder does not exist and cannot be created.
    """

    def __init__(self, folder: Path, node: str, *, bytes_max: int, files_max: int) -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as exc:
            raise OSError(exc.errno, f"event_journal: the folder cannot be made ({exc.strerror})", str(folder)) from exc
        self.writer = EventWriter(EventFiles(folder, node, bytes_max=bytes_max, files_max=files_max), node)
        # Push totals of each queue after the previous batch: results do not contain which messages had been stored before.
        self._pushed_totals: dict[Queue, int] = {}
        self._batches = BatchWatch()
        self._salt = b""
        self._id_prefix = ""

    def begin(self, machine: Machine) -> None:
        """Take the state of a new machine as the start, so that it yields no events; called whenever the machine is replaced."""
        self._pushed_totals = {queue: queue.counters.pushed_total for queue in machine.state.queues.values()}
        self._batches.begin(machine)

    def batch_applied(self, machine: Machine, commands: list[Encoded], applied: Applied, *, own: bool) -> None:
        """Follow an applied batch; write its events if this node proposed it."""
        if not applied.results:
            return
        changes = self._changes(machine, commands, applied)
        if own:
            events = self._events(machine, commands, applied)
            for name, change, is_whole in changes:
                events += _batch_events(machine, name, change, is_whole=is_whole)
            if events:
                self._put(machine, events)
        totals = self._pushed_totals
        for queue in applied.ready:
            totals[queue] = queue.counters.pushed_total
        if len(totals) > 2 * len(machine.state.queues) + _NOTED_SPARE:
            # Most of these queues have been deleted.
            self.begin(machine)

    def close(self) -> None:
        """Write the waiting events. Blocks, so do not call it on the event loop."""
        self.writer.close()

    def _put(self, machine: Machine, events: list[Event]) -> None:
        if machine.state.salt != self._salt:
            self._salt = machine.state.salt
            self._id_prefix = ReceiptFormat(machine.state.salt).prefix.decode() if machine.state.salt else ""
        count = sum(map(_line_count, events))
        self.writer.put(Record(machine.state.now_us, self._id_prefix, events, count))

    def _changes(self, machine: Machine, commands: list[Encoded], applied: Applied) -> list[tuple[bytes, Change, bool]]:
        """Return the changed batch leases as (subscription, change, whether all of the batch was acknowledged)."""
        broken: dict[bytes, set[int]] = {}
        for encoded, result in zip(commands, applied.results, strict=True):
            if isinstance(result, Fault) or encoded[0] not in _OF_BATCHES:
                continue
            command = decode(encoded)
            assert isinstance(command, Reserve | SettleBatches | AbandonBatches)  # noqa: S101 - for the type checker
            epochs = broken.setdefault(command.subscription, set())
            if isinstance(command, SettleBatches):
                epochs.update(result[0])
        return [
            (name, change, change.settled and change.epoch not in epochs)
            for name, epochs in broken.items()
            for change in self._batches.changes(machine, name)
        ]

    def _events(self, machine: Machine, commands: list[Encoded], applied: Applied) -> list[Event]:
        offered: dict[bytes, _Offer] = {}
        others: list[Event] = []
        for command, result in single_commands(commands, applied.results):
            if command.op in PULLS:
                if result:
                    others += _pulled(machine, result)
            elif isinstance(command, Ack | Nack | Extend):
                if command.numbers:
                    others.append(Answered(_answer(command), command.queue, command.numbers, result or False))
            elif isinstance(command, Delete):
                others.append(Deleted(command.queue, result))
            elif isinstance(command, Purge):
                if result:
                    others.append(Purged(command.queue, result, "withdraw" if command.label else "purge"))
            elif isinstance(command, Move | Redrive):
                if result:
                    target = command.target if isinstance(command.target, bytes) else b""
                    verb = "move" if isinstance(command, Move) else "redrive"
                    others.append(Moved(command.queue, target, result, verb))
            else:
                _note_offers(offered, command, result)
        for notice in applied.notices:
            # They are stored after the messages of the batch itself.
            if isinstance(notice, StoredLater) and not isinstance(notice.result, Fault):
                _note(offered, notice.queue, notice.bodies, [flag for flag, _sequence in notice.result])
        return [*self._pushes(offered, applied.ready), *others] if offered else others

    def _pushes(self, offered: dict[bytes, _Offer], ready: Iterable[Queue]) -> Iterable[Event]:
        for queue in dict.fromkeys(ready):
            offer = offered.get(queue.name)
            count = queue.counters.pushed_total - self._pushed_totals.get(queue, 0)
            if offer is not None and count:
                yield Pushed(queue.name, count, offer.last_bytes(count), offer.windows())


class _Offer:
    """The messages that one batch pushed to a queue, including repetitions of numbered pushes of bare bodies."""

    __slots__ = ("bodies", "flags")

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.flags: list[int] = []

    def last_bytes(self, count: int) -> int:
        # Retried messages come before new ones.
        return sum(map(len, self.bodies[-count:]))

    def windows(self) -> int | None:
        if not any(self.flags):
            return None
        return self.flags.count(PushFlag.WINDOW_OPENED)


def _note_offers(offered: dict[bytes, _Offer], command: Command, result: Any) -> None:
    if isinstance(command, Push):
        _note(offered, command.queue, command.contents, result)
    elif isinstance(command, PushStream):
        # Either no message is repeated, or those that an earlier run stored are among them.
        bodies = [row[0] for row, flag in zip(command.rows, result, strict=False) if flag < PushFlag.REPLAYED]
        _note(offered, command.queue, bodies, [PushFlag.STORED] * len(bodies))
    elif isinstance(command, PushRows | PushAttempts):
        if not isinstance(result, Waits):
            bodies = [row if type(row) is bytes else row[0] for row in command.rows]
            _note(offered, command.queue, bodies, [flag for flag, _sequence in result])
    elif isinstance(command, PushEach):
        for queue, flag in result:
            _note(offered, queue, [command.item[0]], [flag])


def _answer(command: Ack | Nack | Extend) -> str:
    if isinstance(command, Nack):
        return "put_back" if command.undoes else "nack"
    return "ack" if isinstance(command, Ack) else "extend"


def _note(offered: dict[bytes, _Offer], queue: bytes, bodies: Sequence[bytes], flags: Sequence[int]) -> None:
    offer = offered.get(queue)
    if offer is None:
        offer = offered[queue] = _Offer()
    if flags and max(flags) >= PushFlag.REPLAYED:
        bodies = [body for body, flag in zip(bodies, flags, strict=True) if flag < PushFlag.REPLAYED]
    offer.bodies += bodies
    offer.flags += [flag for flag in flags if flag < PushFlag.REPLAYED]


def _batch_events(machine: Machine, name: bytes, change: Change, *, is_whole: bool) -> list[Event]:
    """Return the events of the deliveries that a subscription gained or lost."""
    batch = (name, change.epoch)
    events = _pulled(machine, [one for run in change.added for one in _leased(machine, run)], batch)
    for queue, first, count in change.removed:
        numbers = range(first, first + count)
        ended = Ack(queue, []) if change.settled else Nack(queue, [], undoes=True)
        # If the queue was deleted, its messages are gone.
        exists = queue in machine.state.queues
        results = (is_whole and exists) or [
            exists and machine.state.is_repeated(ended, number) is True for number in numbers
        ]
        events.append(Answered(_answer(ended), queue, numbers, results, batch))
    return events


def _leased(machine: Machine, run: Run) -> Iterable[Delivered]:
    """Return the deliveries of a run that were not settled by the same batch of commands.

    A batch lease charges no delivery, but the remaining deliveries are reported as if it did.
    """
    name, first, count = run
    queue = machine.state.queues.get(name)
    leased = {} if queue is None else queue.store.leases.messages
    for number in range(first, first + count):
        message = leased.get(number)
        if message is not None:
            yield name, number, message.remaining - 1, message


def _pulled(machine: Machine, delivered: list[Delivered], batch: Batch | None = None) -> list[Event]:
    """Return the deliveries of one command as a `Pulled` for each run from one queue."""
    events: list[Event] = []
    now_us = machine.state.now_us
    name = None
    full = 0
    for queue, number, remaining, message in delivered:
        if queue != name:
            name, full = queue, _deliveries(machine, queue) - 1
            rows: list[tuple[int, int, int, int, bool, int]] = []
            events.append(Pulled(queue, rows, batch))
        parts = len(message.content) if type(message.content) is list else 0
        wait_us = max(0, now_us - message.ready_us)
        rows.append((number, message.sequence, wait_us, remaining, remaining < full, parts))
    return events


def _deliveries(machine: Machine, name: bytes) -> int:
    """Return the maximum number of deliveries of a message pushed now."""
    queue = machine.state.queues.get(name)
    if queue is not None:
        return queue.settings.deliveries
    return int(machine.state.properties(name)["retry"]) + 1


def _line_count(event: Event) -> int:
    if isinstance(event, Pulled):
        return len(event.deliveries)
    return len(event.numbers) if isinstance(event, Answered) else 1
