"""The event journal of a node: what happened to messages, as gzip JSON lines for figures and audits.

It is off unless ``event_journal`` names a folder. A node writes the events of the commands that it proposed itself, so each is in
the journal of exactly one node of the cluster, the one that the client talked to; the journals of all nodes together tell
everything. `event_file` describes where files are, how they are named, rotated and read after a crash.

Every line is a JSON object (ASCII). Fields of all events:

- ``time``: log time of the batch that the command was in, ISO 8601 in UTC with microseconds (``2026-11-03T14:15:16.123456Z``).
  It is the cluster's time, the same whichever node writes, and does not go back. Events of one batch have the same time; pushes
  stand first, then all others as they were carried out.
- ``event``: ``push``, ``pull``, ``ack``, ``nack``, ``extend``, ``put_back``, ``delete``, ``purge``,
  ``withdraw``, ``move`` or ``redrive``. What a transaction does has the events of its operations.
- ``queue``: name of the queue; bytes that are not UTF-8 are written ``\\xNN``.
- ``node``: name of the node that writes (option ``name``).

``push``: messages were stored. One line for each queue and batch, since a batch may bring tens of thousands.

- ``count``: how many messages. What was not stored because it had been before (a retry of a producer, or with an idempotency key)
  does not count, so the sum over all lines is the number of arrivals.
- ``bytes``: sum of their bodies as stored (what comes over MessagePack-RPC is stored packed). Where part of what was pushed had
  been stored before, that of the last ``count`` bodies of the batch. A push that waited for room in a full queue is in the
  journal of the node whose batch of commands made room, with that batch.
- ``windows``: only if the queue accumulates: how many accumulation windows were opened, each of which becomes a compound message.

``pull``: a message was delivered. One line for each delivery, those included that the node took for a waiting pull.

- ``id``: message id of the delivery as clients see it. Unique; it joins the delivery to what is said of it.
- ``sequence``: number of the message in order of arrival over all queues; the same for all deliveries of the message.
- ``wait_us``: how long it had been due, in microseconds: since its push; for a compound message since the end of its window; for
  one that was nacked since the nack; for one whose lease ended since then.
- ``retry_remaining``: how many more deliveries there may be. If one with 0 is not acknowledged, the message is dropped.
- ``redelivery``: whether the message was delivered before, that is, charged more deliveries than this one. Told by the queue's
  ``retry``, so wrong for messages older than a change of that property; to be sure, count the pulls of a ``sequence``.
- ``parts``: only for a compound message: how many messages were pushed for it.
- ``subscription``, ``epoch``: only if it was for a batch lease: which one. Each message that a reservation took has a line;
  what is read of it, and how often, is no event.

``ack``, ``nack``, ``extend``, ``put_back``: something was said of a delivery. One line for each delivery named.

- ``id``: of the delivery; null if it is no id of this cluster. The queue is the one that was named with it.
- ``ok``: whether there was a lease; false if it had ended or was settled before, also if the queue does not exist.
- ``subscription``, ``epoch``: only for ``ack`` and ``put_back``, if a batch lease was settled or abandoned: which one. To
  renew batch leases is no event.

``put_back`` undoes a delivery that nobody got, mostly by the node itself because a client had left: the pull with this ``id`` is
not to be counted as a delivery, and the message's time of waiting went on.

``delete``: a queue was deleted, with its messages.

- ``ok``: whether it existed.

``purge``: messages of a queue were removed, ``withdraw``: those with a label. ``move``: messages of a queue were put into another
one, where they have new numbers of arrival; they are no pushes. ``redrive``: so were dead letters. One line for each 10,000
messages at most.

- ``count``: how many messages.
- ``to``: only for ``move`` and ``redrive``: name of the other queue, null if each went to the one that it had come from.

The end of a lease, also with the session that it belonged to, and the drop of a message after its last delivery are nobody's
commands and have no line: they show as a pull with ``redelivery`` whose predecessor has neither nack nor put_back, and as a last
pull without an ack.

What may be missing, never doubled: when a node is killed, up to a second of events and those of its commands under way; the
commands of a node that was cut off for so long that it got a snapshot instead; and what was dropped because the disk was full or
too slow, which the metrics ``lmq_events_dropped_total`` and ``lmq_event_journal_errors_total`` count and the log tells.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from ...core import Applied, Fault, Machine, Op, PushFlag, Queue
from ...core.handlers.transactions import single_commands
from ...core.handlers.waiting_pushes import Waits
from ...core.log.command_layout import CONTENTS, ITEM, NUMBERS, OP, QUEUE, ROWS, SUBSCRIPTION, sent_to
from ...core.log.commands import PULLS, Command, Delivered
from ...core.sessions.notices import Pushed as StoredLater
from ...wire.ids import ReceiptFormat
from .batches import BatchWatch, Change, Run
from .files import EventFiles
from .lines import Answered, Batch, Deleted, Event, Moved, Pulled, Purged, Pushed, Record
from .writer import EventWriter

__all__ = ["EventJournal"]

_ANSWERS: Final = {
    Op.ACK: "ack",
    Op.NACK: "nack",
    Op.GIVE_BACK: "nack",
    Op.EXTEND: "extend",
    Op.EXTEND_BY: "extend",
    Op.PUT_BACK: "put_back",
}
_REMOVALS: Final = {Op.PURGE: "purge", Op.WITHDRAW: "withdraw"}
_MOVES: Final = {Op.MOVE: "move", Op.REDRIVE: "redrive"}
_BATCHES: Final = (
    Op.RESERVE, Op.SETTLE_BATCHES, Op.ABANDON_BATCHES, Op.DELETE_SUBSCRIPTION,
)  # fmt: skip
_RICH_PUSHES: Final = (Op.PUSH_TRAITS, Op.PUSH_EXISTING, Op.PUSH_OR_WAIT)
_NOTED_SPARE: Final = 1_000


class EventJournal:
    """Finds the events in what is applied, and hands them to a thread that writes them.

    Args:
        folder: created if absent.
        node: the node's name.
        bytes_max: size at which a file is followed by another.
        files_max: how many files are kept.

    Raises:
        OSError: there is no such folder and it cannot be made.
    """

    def __init__(self, folder: Path, node: str, *, bytes_max: int, files_max: int) -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as exc:
            raise OSError(exc.errno, f"event_journal: the folder cannot be made ({exc.strerror})", str(folder)) from exc
        self.writer = EventWriter(EventFiles(folder, node, bytes_max=bytes_max, files_max=files_max), node)
        # How much had been pushed to each queue after the batch before: results do not tell what was stored already.
        self._pushed_totals: dict[Queue, int] = {}
        self._batches = BatchWatch()
        self._salt = b""
        self._id_prefix = ""

    def begin(self, machine: Machine) -> None:
        """What is in the machine now happened before; called whenever it is another one."""
        self._pushed_totals = {queue: queue.pushed_total for queue in machine.queues.values()}
        self._batches.begin(machine)

    def batch_applied(self, machine: Machine, commands: list[Command], applied: Applied, *, own: bool) -> None:
        """A batch was applied; its events are written if it is this node's own."""
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
            totals[queue] = queue.pushed_total
        if len(totals) > 2 * len(machine.queues) + _NOTED_SPARE:
            # Most of them have been deleted.
            self.begin(machine)

    def close(self) -> None:
        """Write what waits. Blocks, so do not call it on the event loop."""
        self.writer.close()

    def _put(self, machine: Machine, events: list[Event]) -> None:
        if machine.salt != self._salt:
            self._salt = machine.salt
            self._id_prefix = ReceiptFormat(machine.salt).prefix.decode() if machine.salt else ""
        count = sum(map(_line_count, events))
        self.writer.put(Record(machine.now_us, self._id_prefix, events, count))

    def _changes(self, machine: Machine, commands: list[Command], applied: Applied) -> list[tuple[bytes, Change, bool]]:
        """What has become of the batch leases of the subscriptions concerned, and whether all of a batch was acknowledged."""
        broken: dict[bytes, set[int]] = {}
        for command, result in zip(commands, applied.results, strict=True):
            if not isinstance(result, Fault) and command[OP] in _BATCHES:
                epochs = broken.setdefault(command[SUBSCRIPTION], set())
                if command[OP] == Op.SETTLE_BATCHES:
                    epochs.update(result[0])
        return [
            (name, change, change.settled and change.epoch not in epochs)
            for name, epochs in broken.items()
            for change in self._batches.changes(machine, name)
        ]

    def _events(self, machine: Machine, commands: list[Command], applied: Applied) -> list[Event]:
        offered: dict[bytes, _Offer] = {}
        others: list[Event] = []
        for command, result in single_commands(commands, applied.results):
            op = command[OP]
            if op in PULLS:
                if result:
                    others += _pulled(machine, result)
            elif op in _ANSWERS:
                if command[NUMBERS]:
                    others.append(Answered(_ANSWERS[op], command[QUEUE], command[NUMBERS], result or False))
            elif op == Op.DELETE:
                others.append(Deleted(command[QUEUE], result))
            elif op in _REMOVALS:
                if result:
                    others.append(Purged(command[QUEUE], result, _REMOVALS[op]))
            elif op in _MOVES:
                if result:
                    others.append(Moved(command[QUEUE], sent_to(command), result, _MOVES[op]))
            else:
                _note_offers(offered, command, result)
        for notice in applied.notices:
            # They are stored behind what the batch itself brings.
            if isinstance(notice, StoredLater) and not isinstance(notice.result, Fault):
                _note(offered, notice.queue, notice.bodies, [flag for flag, _sequence in notice.result])
        return [*self._pushes(offered, applied.ready), *others] if offered else others

    def _pushes(self, offered: dict[bytes, _Offer], ready: Iterable[Queue]) -> Iterable[Event]:
        for queue in dict.fromkeys(ready):
            offer = offered.get(queue.name)
            count = queue.pushed_total - self._pushed_totals.get(queue, 0)
            if offer is not None and count:
                yield Pushed(queue.name, count, offer.last_bytes(count), offer.windows())


class _Offer:
    """What one batch brought to a queue, whether it was stored or had been."""

    __slots__ = ("bodies", "flags")

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.flags: list[int] = []

    def last_bytes(self, count: int) -> int:
        # What was stored before is sent before what is new.
        return sum(map(len, self.bodies[-count:]))

    def windows(self) -> int | None:
        if not any(self.flags):
            return None
        return self.flags.count(PushFlag.WINDOW_OPENED)


def _note_offers(offered: dict[bytes, _Offer], command: Command, result: Any) -> None:
    op = command[OP]
    if op == Op.PUSH:
        _note(offered, command[QUEUE], command[CONTENTS], result)
    elif op == Op.PUSH_MARKED:
        # None comes again, or those that an earlier run has stored are among them.
        bodies = [item[0] for item, flag in zip(command[ROWS], result, strict=False) if flag < PushFlag.REPLAYED]
        _note(offered, command[QUEUE], bodies, [PushFlag.STORED] * len(bodies))
    elif op == Op.PUSH_ITEMS:
        _note(offered, command[QUEUE], [item[0] for item in command[ROWS]], result)
    elif op in _RICH_PUSHES:
        if not isinstance(result, Waits):
            bodies = [row if type(row) is bytes else row[0] for row in command[ROWS]]
            _note(offered, command[QUEUE], bodies, [flag for flag, _sequence in result])
    elif op == Op.PUSH_EACH:
        for queue, flag in result:
            _note(offered, queue, [command[ITEM][0]], [flag])


def _note(offered: dict[bytes, _Offer], queue: bytes, bodies: Sequence[bytes], flags: Sequence[int]) -> None:
    offer = offered.get(queue)
    if offer is None:
        offer = offered[queue] = _Offer()
    if flags and max(flags) >= PushFlag.FULL:
        bodies = [body for body, flag in zip(bodies, flags, strict=True) if flag < PushFlag.FULL]
    offer.bodies += bodies
    offer.flags += [flag for flag in flags if flag < PushFlag.REPLAYED]


def _batch_events(machine: Machine, name: bytes, change: Change, *, is_whole: bool) -> list[Event]:
    """What a subscription took or gave up."""
    batch = (name, change.epoch)
    events = _pulled(machine, [one for run in change.added for one in _leased(machine, run)], batch)
    op = Op.ACK if change.settled else Op.PUT_BACK
    for queue, first, count in change.removed:
        numbers = range(first, first + count)
        # A queue that was deleted took its messages with it.
        exists = queue in machine.queues
        results = (is_whole and exists) or [
            exists and machine.settled_by(op, queue, number) is True for number in numbers
        ]
        events.append(Answered(_ANSWERS[op], queue, numbers, results, batch))
    return events


def _leased(machine: Machine, run: Run) -> Iterable[Delivered]:
    """Return the deliveries of a run that were not settled by the same batch of commands.

    A batch charges no delivery. What remains of a message is told as if it had.
    """
    name, first, count = run
    queue = machine.queues.get(name)
    leased = {} if queue is None else queue.leases.messages
    for number in range(first, first + count):
        message = leased.get(number)
        if message is not None:
            yield name, number, message.remaining - 1, message


def _pulled(machine: Machine, delivered: list[Delivered], batch: Batch | None = None) -> list[Event]:
    """Deliveries of one command, a `Pulled` for each run from one queue."""
    events: list[Event] = []
    now_us = machine.now_us
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
    """How often a message pushed now may be delivered."""
    queue = machine.queues.get(name)
    if queue is not None:
        return queue.settings.deliveries
    return int(machine.properties(name)["retry"]) + 1


def _line_count(event: Event) -> int:
    if isinstance(event, Pulled):
        return len(event.deliveries)
    return len(event.numbers) if isinstance(event, Answered) else 1
