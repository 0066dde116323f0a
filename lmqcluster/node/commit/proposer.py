"""Group commit: collects the commands of one event-loop turn into batches and sees each batch applied exactly once.

Commands of the same kind on the same queue that follow one another share one command of the batch (`PendingCommand`). A batch
is encoded once, handed to the leader, and sent again under the same number after every change of the leader until it is in
this node's own log; the state machine drops what it has applied already and what arrives out of order.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter, deque
from collections.abc import Iterable
from typing import Any, Protocol

import msgpack
import structlog

from ...core import Applied, Fault
from ...core.log.command_layout import OP, producer_of
from ...core.log.commands import Command
from ...replication.base.histogram import Histogram
from ...wire.errors import LmqError
from ...wire.limits import BATCH_BYTES_MAX
from ...wire.parts import LARGE_BYTES, packed_parts

__all__ = ["Carrier", "PendingCommand", "Proposer", "Sink"]

log = structlog.get_logger("lmq.proposer")

GROUP_ITEMS_MAX = 512
BATCH_BYTES = 256 * 1024
BATCH_COPIES = 5_000
"""A batch that stores so many copies of messages, for bound queues and aliases, takes no further command.

Copies take no bytes in the log, but each takes about 4 us when the batch is applied.
"""
FEW_COPIES = 10
"""A command that makes more copies than this may not grow."""
COPIES_HELD = 50_000
"""While commands that make so many copies wait, connections that make more of them wait too."""
PENDING_COPIES_MAX = 250_000
BATCHES_INFLIGHT_MAX = 3
PENDING_BYTES_MAX = 128 * 1024 * 1024
NO_LEADER_AFTER_S = 6.0
UNKNOWN_AFTER_S = 15.0
INFLIGHT_BYTES_MAX = 4 * 1024 * 1024
"""No further batch is sent while so much is unresolved: large ones one at a time, so that a link's buffer holds them."""
RESEND_AFTER_S = 0.5
RESEND_AFTER_S_MAX = 4.0
RESEND_BYTES_PER_S = 8 * 1024 * 1024
"""How fast a slow network is, to give large batches time: sending them again too early makes it slower still."""
SWEEP_S = 0.25


class Sink(Protocol):
    """Who waits for a group."""

    def completed(self, group: PendingCommand, result: Any) -> None:
        """The command was applied; `result` is what the core returned, never a `Fault`."""

    def failed(self, group: PendingCommand, error: LmqError) -> None:
        """The command was refused, or its outcome is unknown. After an unknown outcome `completed` may still follow."""


class Carrier(Protocol):
    """What brings a batch to the leader."""

    def submit(self, sequence: int, batch: bytes) -> bool:
        """Send; False if there is nobody to send to now."""

    def has_leader(self) -> bool:
        """Whether there is a leader to send to."""

    def copies_of(self, command: Command) -> int:
        """Return about how many copies of its messages a command stores beyond what its bytes show."""


class Holdable(Protocol):
    """A connection that can be made to wait."""

    def hold(self) -> None:
        """Carry out no further request until `go_on`."""

    def go_on(self) -> None:
        """Carry out requests again."""


class PendingCommand:
    """One command and the tickets of those who share it, in the order of its items.

    Attributes:
        copies: about how many copies it stores, see `Carrier.copies_of`; set when it is added.
    """

    __slots__ = ("answered", "command", "copies", "since_s", "sink", "size_bytes", "tickets")

    def __init__(self, command: Command, tickets: list[Any], sink: Sink) -> None:
        self.answered = False
        self.command = command
        self.copies = 0
        self.size_bytes = 0
        self.tickets = tickets
        self.sink = sink
        self.since_s = time.monotonic()


class _Batch:
    __slots__ = ("given_up", "groups", "items", "made_s", "payload", "sent_s", "sequence", "since_s")

    def __init__(self, sequence: int, payload: bytes, groups: list[PendingCommand], since_s: float) -> None:
        self.sequence = sequence
        self.payload = payload
        self.groups = groups
        self.items = sum(len(group.tickets) for group in groups)
        self.since_s = since_s
        self.made_s = time.monotonic()
        self.sent_s = 0.0
        self.given_up = False


class Proposer:
    """The batches of this node.

    Attributes:
        tail: the group that was added last and may still grow, or None. Hot paths append to its command and tickets if they
            fit, and then call `grew`; a group is small, so only `add` checks the bounds.
        last_sequence: number of the last batch made in this incarnation.
        items_total, batches_total, resends_total: counters.
        failed_total: items that were taken and then failed, by error code.
        durations: seconds from taking a group until it was applied, by operation, counted for each of its items.
        commit_durations: the same of batches, from their making.
    """

    def __init__(self, carrier: Carrier, origin: bytes, incarnation: int) -> None:
        self._carrier = carrier
        self.origin = origin
        self.incarnation = incarnation
        self.tail: PendingCommand | None = None
        self.items_total = 0
        self.batches_total = 0
        self.resends_total = 0
        self.failed_total: Counter[str] = Counter()
        self.durations: dict[int, Histogram] = {}
        self.commit_durations = Histogram()
        self._loop = asyncio.get_running_loop()
        # Both in the order of their age: the node's own commands go first, and must not hide how old the others are.
        self._own: deque[PendingCommand] = deque()
        self._pending: deque[PendingCommand] = deque()
        self._pending_bytes = 0
        self._pending_copies = 0
        self._held: list[Holdable] = []
        self._inflight: deque[_Batch] = deque()
        self._inflight_bytes = 0
        self._patience_s = RESEND_AFTER_S
        self.last_sequence = 0
        self._scheduled = False
        self._refusing: LmqError | None = None
        self._closed = False
        self._sweeper = self._loop.call_later(SWEEP_S, self._sweep)
        self._retry: asyncio.TimerHandle | None = None
        self._idle = asyncio.Event()

    # --- taking commands ------------------------------------------------------------------------------------------

    def add(self, group: PendingCommand, size_bytes: int) -> None:
        """Queue a command.

        Raises:
            LmqError: ``overloaded`` if too much is pending already, be it bytes or copies to make, ``shutting_down``;
                nothing was queued.
        """
        if self._refusing is not None:
            raise self._refusing.again()
        if self._pending_bytes > PENDING_BYTES_MAX:
            raise LmqError(
                "overloaded",
                f"{self._pending_bytes} bytes of requests wait at this node to be replicated; try again later",
            )
        group.copies = self._carrier.copies_of(group.command)
        if group.copies and self._pending_copies > PENDING_COPIES_MAX:
            raise LmqError(
                "overloaded",
                f"{self._pending_copies} copies for bound queues wait at this node to be replicated; try again later",
            )
        self._pending_copies += group.copies
        self._pending.append(group)
        self.tail = group if group.copies <= FEW_COPIES else None
        self.grew(group, size_bytes)
        self._flush_soon()

    def pace(self, group: PendingCommand, connection: Holdable) -> None:
        """Hold a connection whose group was added as long as too many copies wait to be made, if the group makes some."""
        if group.copies and self._pending_copies > COPIES_HELD:
            connection.hold()
            self._held.append(connection)

    def add_first(self, group: PendingCommand) -> None:
        """Queue a small command of the node itself before all that waits, also while clients are refused."""
        if not self._closed:
            self._own.append(group)
            self._flush_soon()

    def _flush_soon(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._flush)

    def grew(self, group: PendingCommand, size_bytes: int) -> None:
        """Count bytes of an item that was appended to a group; a group with enough of them takes no more."""
        group.size_bytes += size_bytes
        self._pending_bytes += size_bytes
        if len(group.tickets) >= GROUP_ITEMS_MAX or group.size_bytes >= BATCH_BYTES:
            self.tail = None

    def is_full(self) -> bool:
        """Whether connections should stop reading until pending work has shrunk."""
        return self._pending_bytes > PENDING_BYTES_MAX // 2

    def pending(self) -> int:
        """Groups waiting to be sent and batches waiting to be applied."""
        return len(self._own) + len(self._pending) + len(self._inflight)

    # --- sending --------------------------------------------------------------------------------------------------

    def _flush(self) -> None:
        self._scheduled = False
        while (
            (self._own or self._pending)
            and len(self._inflight) < BATCHES_INFLIGHT_MAX
            and self._inflight_bytes < INFLIGHT_BYTES_MAX
            and self._is_worth_a_batch()
            and self._carrier.has_leader()
        ):
            batch = self._next_batch()
            if batch is not None:
                self._send(batch)

    def _is_worth_a_batch(self) -> bool:
        """Whether nothing is in flight, or as much waits: a batch costs the cluster a sync, however little it holds."""
        inflight = sum(batch.items for batch in self._inflight)
        waiting = len(self._own)
        for group in self._pending:
            if waiting >= inflight:
                break
            waiting += len(group.tickets)
        return waiting >= inflight

    def _next_batch(self) -> _Batch | None:
        """Take pending groups into a batch; None if they had to be refused."""
        oldest = [groups[0].since_s for groups in (self._own, self._pending) if groups]
        groups = list(self._own)
        self._own.clear()
        commands = [group.command for group in groups]
        size = copies = 0
        while (
            self._pending
            and size < BATCH_BYTES
            and copies < BATCH_COPIES
            and not (groups and len(groups[-1].tickets) >= GROUP_ITEMS_MAX)
        ):
            group = self._pending.popleft()
            copies += group.copies
            self.items_total += len(group.tickets)
            groups.append(group)
            commands.append(group.command)
            size += group.size_bytes
        if not self._pending:
            self.tail = None
        self._pending_bytes -= size
        self._made_room(copies)
        payload = self._encode(commands, size)
        if len(payload) > BATCH_BYTES_MAX:
            # Front ends bound what they add, so this is a second line of defence.
            log.error("batch too large", size=len(payload), ops=[command[OP] for command in commands])
            for group in groups:
                self._refuse(group, LmqError("too_large", f"the request needs a log entry of {len(payload)} bytes"))
            return None
        self.batches_total += 1
        return self._number(groups, payload, min(oldest))

    def _made_room(self, copies: int) -> None:
        """So many copies wait no more."""
        self._pending_copies -= copies
        if self._held and self._pending_copies <= COPIES_HELD:
            held, self._held = self._held, []
            for connection in held:
                connection.go_on()

    def _encode(self, commands: list[Command], size_bytes: int) -> bytes:
        batch = [self.origin, self.incarnation, self.last_sequence + 1, commands]
        if size_bytes > LARGE_BYTES:
            return b"".join(packed_parts(batch))
        payload: bytes = msgpack.packb(batch)
        return payload

    def _number(self, groups: list[PendingCommand], payload: bytes, since_s: float) -> _Batch:
        self.last_sequence += 1
        batch = _Batch(self.last_sequence, payload, groups, since_s)
        self._inflight.append(batch)
        self._inflight_bytes += len(payload)
        return batch

    def _send(self, batch: _Batch) -> None:
        batch.sent_s = time.monotonic()
        self._carrier.submit(batch.sequence, batch.payload)

    def resend(self) -> None:
        """Send everything unresolved again, in order."""
        for batch in self._inflight:
            self.resends_total += 1
            self._send(batch)
        self._flush()

    def resend_soon(self) -> None:
        """Send again in a moment: the node that was asked does not lead, and it takes a while until one does."""
        if self._retry is None:
            self._retry = self._loop.call_later(0.05, self._resend_now)

    def _resend_now(self) -> None:
        self._retry = None
        if not self._closed:
            self.resend()

    # --- outcomes -------------------------------------------------------------------------------------------------

    def begin_again(self, incarnation: int, *, is_known: bool = True) -> None:
        """The cluster takes nothing of this incarnation any more, because it knows a later one: go on as `incarnation`.

        What is in flight was not applied and never will be, so it is sent again under new numbers, unless it was given up.
        All of it is given up if that is not known, because a snapshot may hold it.
        """
        inflight, self._inflight = list(self._inflight), deque()
        self._inflight_bytes = 0
        self.incarnation = incarnation
        self.last_sequence = 0
        given_up = [group for batch in inflight if batch.given_up or not is_known for group in batch.groups]
        # A later push of one of them must not overtake it.
        producers = _producers_of(given_up)
        overtaking: list[PendingCommand] = []
        for batch in inflight:
            if batch.given_up or not is_known:
                continue
            late = _pushed_by(producers, batch.groups)
            overtaking += late
            groups = [group for group in batch.groups if group not in late] if late else batch.groups
            if groups:
                payload = self._encode([group.command for group in groups], len(batch.payload))
                self._number(groups, payload, batch.since_s)
        for group in given_up:
            self._refuse(
                group, LmqError("unknown_outcome", "this node was cut off; the result of the operation is lost")
            )
        for group in overtaking:
            self._refuse(group, _overtaking())
        self._refuse_waiting(self._take_waiting_of(producers), _overtaking())
        self.resend()

    def applied(self, sequence: int, applied: Applied) -> None:
        """A batch of this incarnation was met in the log."""
        if applied.status == "gap":
            self.resend_soon()
            return
        if applied.status != "applied" or not self._inflight or self._inflight[0].sequence != sequence:
            return
        batch = self._take_first()
        self._patience_s = RESEND_AFTER_S
        self._observe(batch)
        for group, result in zip(batch.groups, applied.results, strict=True):
            self._complete(group, result)
        if not self.pending():
            self._idle.set()
        elif self._own or self._pending:
            self._flush_soon()

    def covered(self, last_sequence: int) -> None:
        """A snapshot was installed that contains this node's batches up to `last_sequence`: applied, results lost."""
        while self._inflight and self._inflight[0].sequence <= last_sequence:
            for group in self._take_first().groups:
                error = LmqError(
                    "unknown_outcome", "the operation was applied while this node was cut off; its result is lost"
                )
                self._refuse(group, error)
        self.resend()

    async def drained(self, grace_s: float) -> None:
        """Wait until everything proposed so far has its outcome, for up to `grace_s` seconds."""
        self._idle.clear()
        if self.pending():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._idle.wait(), grace_s)

    def retire(self, error: LmqError) -> None:
        """Refuse new commands of clients with `error` from now on; what was taken goes on to its outcome."""
        self._refusing = error
        self.tail = None

    async def settle(self, grace_s: float, error: LmqError) -> None:
        """Wait for the outcomes as `drained`, then fail what has none: with `error` what no leader has taken, else as unknown.

        The node's own commands, and batches that a leader may have taken, are still sent.
        """
        await self.drained(grace_s)
        while self._pending:
            self._refuse(self._pending.popleft(), error)
        self._pending_bytes = 0
        self._made_room(self._pending_copies)
        self._give_up(list(self._inflight), f"the node stopped before the outcome was known: {error}")
        self._idle.set()

    def resume(self) -> None:
        """Take commands of clients again after `retire`."""
        if not self._closed:
            self._refusing = None

    def close(self, error: LmqError) -> None:
        """Take no more; fail what is pending with `error`, what is in flight as unknown."""
        self._refusing = error
        self._closed = True
        self._sweeper.cancel()
        if self._retry is not None:
            self._retry.cancel()
        for waiting in (self._own, self._pending):
            while waiting:
                self._refuse(waiting.popleft(), error)
        self._give_up(list(self._inflight), f"the node stopped before the outcome was known: {error}")
        self._inflight.clear()
        self._inflight_bytes = 0
        self.tail = None

    def _take_first(self) -> _Batch:
        batch = self._inflight.popleft()
        self._inflight_bytes -= len(batch.payload)
        return batch

    def _observe(self, batch: _Batch) -> None:
        now_s = time.monotonic()
        self.commit_durations.observe(now_s - batch.made_s)
        for group in batch.groups:
            if not group.tickets:
                continue
            op = group.command[OP]
            durations = self.durations.get(op)
            if durations is None:
                durations = self.durations[op] = Histogram()
            durations.observe(now_s - group.since_s, len(group.tickets))

    def _complete(self, group: PendingCommand, result: Any) -> None:
        group.answered = True
        try:
            if isinstance(result, Fault):
                group.sink.failed(group, _error_of(result))
            else:
                group.sink.completed(group, result)
        except Exception:
            # One client's broken reply must not stop replication, nor other clients' replies.
            log.exception("reply failed", op=group.command[OP])

    def _refuse(self, group: PendingCommand, error: LmqError) -> None:
        if group.answered:
            return
        group.answered = True
        self.failed_total[error.code] += len(group.tickets)
        try:
            group.sink.failed(group, error)
        except Exception:
            log.exception("error reply failed", op=group.command[OP])

    def _sweep(self) -> None:
        """Give up on what has waited too long, and send again what may have been lost."""
        self._sweeper = self._loop.call_later(SWEEP_S, self._sweep)
        now = time.monotonic()
        patience_s = self._patience_s + self._inflight_bytes / RESEND_BYTES_PER_S
        if self._inflight and now - self._inflight[0].sent_s > patience_s:
            self._patience_s = min(2 * self._patience_s, RESEND_AFTER_S_MAX)
            self.resend()
        self._refuse_old_pending(now)
        late = [batch for batch in self._inflight if now - batch.since_s > UNKNOWN_AFTER_S]
        self._give_up(late, f"the cluster has not confirmed the operation within {UNKNOWN_AFTER_S:g} s")

    def _give_up(self, batches: Iterable[_Batch], reason: str) -> None:
        """Answer those who wait for these batches, once, that the outcome is unknown."""
        for batch in batches:
            if not batch.given_up:
                batch.given_up = True
                for group in batch.groups:
                    self._refuse(group, LmqError("unknown_outcome", reason))

    def _refuse_old_pending(self, now: float) -> None:
        """Refuse what no leader has taken for too long, and with a producer's push its later ones, which must not overtake it."""
        refused: list[PendingCommand] = []
        for waiting in (self._own, self._pending):
            while waiting and now - waiting[0].since_s > NO_LEADER_AFTER_S:
                refused.append(waiting.popleft())
        refused += self._take_waiting_of(_producers_of(refused))
        reason = f"no leader has taken the request within {NO_LEADER_AFTER_S:g} s; it was not applied"
        self._refuse_waiting(refused, LmqError("no_leader", reason))

    def _take_waiting_of(self, producers: set[bytes]) -> list[PendingCommand]:
        """Let nothing of these producers wait any more; returns what did."""
        taken = _pushed_by(producers, self._pending)
        if taken:
            self._pending = deque(group for group in self._pending if producer_of(group.command) not in producers)
        return taken

    def _refuse_waiting(self, groups: list[PendingCommand], error: LmqError) -> None:
        """Refuse what has just been taken out of what waits."""
        for group in groups:
            self._pending_bytes -= group.size_bytes
            self._made_room(group.copies)
            if group is self.tail:
                self.tail = None
            self._refuse(group, error.again())


def _producers_of(groups: Iterable[PendingCommand]) -> set[bytes]:
    found = {producer_of(group.command) for group in groups}
    return {producer for producer in found if producer is not None}


def _pushed_by(producers: set[bytes], groups: Iterable[PendingCommand]) -> list[PendingCommand]:
    return [group for group in groups if producer_of(group.command) in producers] if producers else []


def _overtaking() -> LmqError:
    return LmqError(
        "no_leader", "the cluster has not confirmed an earlier push of the same producer; this one was not applied"
    )


def _error_of(fault: Fault) -> LmqError:
    if fault.code:
        return LmqError(fault.code, fault.reason)
    return LmqError("bad_request", f"the state machine refused the command: {fault.reason}")
