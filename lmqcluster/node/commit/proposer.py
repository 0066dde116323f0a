"""Group commit: collects the commands of one event-loop turn into batches and ensures that each is applied exactly once.

Requests of the same kind on the same queue share one command of the batch (`PendingCommand`), whatever connection they
arrive on, unless that would change the order of the requests of one connection. The node encodes a batch once and sends
it to the leader. After every change of the leader it sends the batch again under the same number, until the batch is in
the node's own log. The state machine drops duplicates and batches that arrive out of order.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from typing import Any, Protocol, TypeVar

import msgpack
import structlog

from ...core import Applied, Fault
from ...core.log.commands import Ack, Command, Extend, Nack, Poll, Pull, PullInSession, Push, PushAttempts, PushRows
from ...replication.base.histogram import Histogram
from ...wire.errors import LmqError
from ...wire.limits import BATCH_BYTES_MAX
from ...wire.parts import LARGE_BYTES, packed_parts

__all__ = ["Carrier", "PendingCommand", "Proposer", "Sink", "producer_of"]

log = structlog.get_logger("lmq.proposer")

COMMAND_ITEMS_MAX = 512
BATCH_BYTES = 256 * 1024
BATCH_COPIES = 5_000
"""A batch that stores this many copies of messages, for bound queues and aliases, takes no further command.

Copies take no bytes in the log, but applying each takes about 4 us.
"""
FEW_COPIES = 10
"""A command that makes more copies than this takes no further items."""
COPIES_HELD = 50_000
"""Backpressure: while pending commands make more copies than this, connections that make more wait too."""
PENDING_COPIES_MAX = 250_000
BATCHES_INFLIGHT_MAX = 3
PENDING_BYTES_MAX = 128 * 1024 * 1024
NO_LEADER_AFTER_S = 6.0
UNKNOWN_AFTER_S = 15.0
INFLIGHT_BYTES_MAX = 4 * 1024 * 1024
"""No further batch is sent while this much is in flight: large batches go one at a time, so that a link's buffer holds them."""
RESEND_AFTER_S = 0.5
RESEND_AFTER_S_MAX = 4.0
RESEND_BYTES_PER_S = 8 * 1024 * 1024
"""Assumed rate of a slow network. It delays resends of large batches, which would slow the network further."""
SWEEP_S = 0.25
FAILURES = ("no_leader", "unknown_outcome")
"""Counted from 0: the first value of a series is no increase for Prometheus."""

SHAREABLE = (Push, PushAttempts, Pull, PullInSession, Poll, Ack, Nack, Extend)
"""The commands that several requests may share."""
Shareable = TypeVar("Shareable", bound=Push | PushAttempts | Pull | PullInSession | Poll | Ack | Nack | Extend)


class Sink(Protocol):
    """The receiver of the outcome of a `PendingCommand`."""

    def completed(self, pending: PendingCommand, result: Any) -> None:
        """Handle an applied command; `result` is the result of the core, never a `Fault`."""

    def failed(self, pending: PendingCommand, error: LmqError) -> None:
        """Handle a command that was refused or has an unknown outcome. After an unknown outcome `completed` may still follow."""


class CommandTraces(Protocol):
    """The observer of commands that have returned from the log."""

    def applied(self, made_s: float, pending_commands: Sequence[PendingCommand], results: Sequence[Any]) -> None:
        """Handle the commands of a batch that was made at `made_s`, by the monotonic clock."""


class Carrier(Protocol):
    """The transport of batches to the leader."""

    def submit(self, sequence: int, batch: bytes) -> bool:
        """Send a batch; return False if there is no leader."""

    def has_leader(self) -> bool:
        """Return whether there is a leader to send to."""

    def copies_of(self, command: Command) -> int:
        """Return the approximate number of message copies that a command stores beyond the messages in its bytes."""


class Holdable(Protocol):
    """A connection that backpressure can pause."""

    def hold(self) -> None:
        """Execute no further request until `go_on`."""

    def go_on(self) -> None:
        """Resume the execution of requests."""


class PendingCommand:
    """A command that is not applied yet, and the requests that share it, in the order of its items.

    Attributes:
        copies: approximate number of copies it stores, see `Carrier.copies_of`; set when it is added.
        number: its place in the order of all commands of this node; set when it is added.
    """

    __slots__ = ("answered", "command", "copies", "number", "requests", "since_s", "sink", "size_bytes")

    def __init__(self, command: Command, requests: list[Any], sink: Sink) -> None:
        self.answered = False
        self.command = command
        self.copies = 0
        self.number = 0
        self.size_bytes = 0
        self.requests = requests
        self.sink = sink
        self.since_s = time.monotonic()


class _Batch:
    __slots__ = ("given_up", "items", "made_s", "payload", "pending_commands", "sent_s", "sequence", "since_s")

    def __init__(self, sequence: int, payload: bytes, pending_commands: list[PendingCommand], since_s: float) -> None:
        self.sequence = sequence
        self.payload = payload
        self.pending_commands = pending_commands
        self.items = sum(len(pending.requests) for pending in pending_commands)
        self.since_s = since_s
        self.made_s = time.monotonic()
        self.sent_s = 0.0
        self.given_up = False


class Proposer:
    """The batches of this node.

    Attributes:
        last_number: number of the command that was added last.
        last_sequence: number of the last batch made in this incarnation.
        items_total, batches_total, resends_total: counters.
        failed_total: accepted items that failed, by error code.
        durations: seconds from accepting a command until it is applied, by operation, counted for each of its items.
        commit_durations: seconds from creating a batch until it is applied.
        traces: makes spans of commands; None if it is off.
    """

    def __init__(self, carrier: Carrier, origin: bytes, incarnation: int) -> None:
        self._carrier = carrier
        self.origin = origin
        self.incarnation = incarnation
        # For each kind, the pending command of each queue that takes more items.
        self._open: dict[type[Command], dict[bytes, PendingCommand]] = {kind: {} for kind in SHAREABLE}
        # The command that `open_command` found last.
        self._shared: PendingCommand | None = None
        self.last_number = 0
        self.items_total = 0
        self.batches_total = 0
        self.resends_total = 0
        self.failed_total = Counter(dict.fromkeys(FAILURES, 0))
        self.durations: dict[int, Histogram] = {}
        self.commit_durations = Histogram()
        self.traces: CommandTraces | None = None
        self._loop = asyncio.get_running_loop()
        # Two queues, in order of age, so that the oldest command of each is its first. The node's own go first.
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

    def add(self, pending: PendingCommand, size_bytes: int) -> None:
        """Queue a command.

        Raises:
            LmqError: ``overloaded`` if too many bytes or copies are pending, ``shutting_down``; nothing was queued.
        """
        if self._refusing is not None:
            raise self._refusing.again()
        if self._pending_bytes > PENDING_BYTES_MAX:
            raise LmqError(
                "overloaded",
                f"{self._pending_bytes} bytes of requests wait at this node to be replicated; try again later",
            )
        pending.copies = self._carrier.copies_of(pending.command)
        if pending.copies and self._pending_copies > PENDING_COPIES_MAX:
            raise LmqError(
                "overloaded",
                f"{self._pending_copies} copies for bound queues wait at this node to be replicated; try again later",
            )
        self._pending_copies += pending.copies
        self._pending.append(pending)
        self.last_number = pending.number = self.last_number + 1
        is_open = pending.copies <= FEW_COPIES
        if is_open and (commands := self._open.get(type(pending.command))) is not None:
            commands[pending.command.queue] = pending  # type: ignore[attr-defined]  # each of these kinds has a queue
        self._count(pending, size_bytes)
        self._flush_soon()

    def pace(self, pending: PendingCommand, connection: Holdable) -> None:
        """Hold the connection of an added command that makes copies while too many copies are pending."""
        if pending.copies and self._pending_copies > COPIES_HELD:
            connection.hold()
            self._held.append(connection)

    def add_first(self, pending: PendingCommand) -> None:
        """Queue a small command of the node itself ahead of all pending commands, even while clients are refused."""
        if not self._closed:
            self._own.append(pending)
            self._flush_soon()

    def _flush_soon(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._flush)

    def open_command(self, sink: Sink, kind: type[Shareable], queue: bytes, since: int) -> Shareable | None:
        """Return the pending command of this kind, queue and sink if it takes more items, or None.

        The caller appends its items to the command and then calls `share`. `since` keeps the order of the requests of one
        client: it is the number of the command that the previous request of the client is in. An earlier command is not
        returned.
        """
        pending = self._open[kind].get(queue)
        if pending is None or pending.number < since or pending.sink is not sink:
            return None
        self._shared = pending
        return pending.command  # type: ignore[return-value]  # found by its kind

    def share(self, size_bytes: int, *requests: Any) -> int:
        """Add the requests of the items that were appended to the command of `open_command`; return its number."""
        pending = self._shared
        assert pending is not None  # noqa: S101 - for the type checker
        pending.requests.extend(requests)
        self._count(pending, size_bytes)
        return pending.number

    def _close(self, pending: PendingCommand) -> None:
        """Add no more items to a command."""
        commands = self._open.get(type(pending.command))
        if commands is not None:
            queue = pending.command.queue  # type: ignore[attr-defined]  # each of these kinds has a queue
            if commands.get(queue) is pending:
                del commands[queue]

    def _close_all(self) -> None:
        for commands in self._open.values():
            commands.clear()

    def _count(self, pending: PendingCommand, size_bytes: int) -> None:
        """Count the bytes of items of a command; a full command takes no more."""
        pending.size_bytes += size_bytes
        self._pending_bytes += size_bytes
        if len(pending.requests) >= COMMAND_ITEMS_MAX or pending.size_bytes >= BATCH_BYTES:
            self._close(pending)

    def is_full(self) -> bool:
        """Return whether connections should stop reading until less work is pending."""
        return self._pending_bytes > PENDING_BYTES_MAX // 2

    def pending(self) -> int:
        """Return the number of commands waiting to be sent plus batches waiting to be applied."""
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
        """Return whether at least as many items wait as are in flight: each batch, however small, costs the cluster an fsync."""
        inflight = sum(batch.items for batch in self._inflight)
        waiting = len(self._own)
        for pending in self._pending:
            if waiting >= inflight:
                break
            waiting += len(pending.requests)
        return waiting >= inflight

    def _next_batch(self) -> _Batch | None:
        """Build a batch from pending commands; None if they had to be refused."""
        oldest = [pending_commands[0].since_s for pending_commands in (self._own, self._pending) if pending_commands]
        pending_commands = list(self._own)
        self._own.clear()
        commands = [pending.command for pending in pending_commands]
        size = copies = 0
        while (
            self._pending
            and size < BATCH_BYTES
            and copies < BATCH_COPIES
            and not (pending_commands and len(pending_commands[-1].requests) >= COMMAND_ITEMS_MAX)
        ):
            pending = self._pending.popleft()
            self._close(pending)
            copies += pending.copies
            self.items_total += len(pending.requests)
            pending_commands.append(pending)
            commands.append(pending.command)
            size += pending.size_bytes
        self._pending_bytes -= size
        self._made_room(copies)
        payload = self._encode(commands, size)
        if len(payload) > BATCH_BYTES_MAX:
            # Protocols limit what they add, so this is a second check.
            log.error("batch too large", size=len(payload), ops=[command.op for command in commands])
            for pending in pending_commands:
                self._refuse(pending, LmqError("too_large", f"the request needs a log entry of {len(payload)} bytes"))
            return None
        self.batches_total += 1
        return self._number(pending_commands, payload, min(oldest))

    def _made_room(self, copies: int) -> None:
        """Subtract copies that no longer wait, and resume held connections if there is room."""
        self._pending_copies -= copies
        if self._held and self._pending_copies <= COPIES_HELD:
            held, self._held = self._held, []
            for connection in held:
                connection.go_on()

    def _encode(self, commands: list[Command], size_bytes: int) -> bytes:
        batch = [self.origin, self.incarnation, self.last_sequence + 1, [command.encode() for command in commands]]
        if size_bytes > LARGE_BYTES:
            return b"".join(packed_parts(batch))
        payload: bytes = msgpack.packb(batch)
        return payload

    def _number(self, pending_commands: list[PendingCommand], payload: bytes, since_s: float) -> _Batch:
        self.last_sequence += 1
        batch = _Batch(self.last_sequence, payload, pending_commands, since_s)
        self._inflight.append(batch)
        self._inflight_bytes += len(payload)
        return batch

    def _send(self, batch: _Batch) -> None:
        batch.sent_s = time.monotonic()
        self._carrier.submit(batch.sequence, batch.payload)

    def resend(self) -> None:
        """Resend all unresolved batches in order."""
        for batch in self._inflight:
            self.resends_total += 1
            self._send(batch)
        self._flush()

    def resend_soon(self) -> None:
        """Resend after a short delay: the node that was asked does not lead, and electing a leader takes time."""
        if self._retry is None:
            self._retry = self._loop.call_later(0.05, self._resend_now)

    def _resend_now(self) -> None:
        self._retry = None
        if not self._closed:
            self.resend()

    # --- outcomes -------------------------------------------------------------------------------------------------

    def begin_again(self, incarnation: int, *, is_known: bool = True) -> None:
        """Continue as `incarnation`, because the cluster knows a later incarnation than the current one and rejects its batches.

        The batches in flight were not applied and never will be. They are sent again under new numbers, unless they were given
        up. If `is_known` is false, a snapshot may contain them, so all are given up.
        """
        inflight, self._inflight = list(self._inflight), deque()
        self._inflight_bytes = 0
        self.incarnation = incarnation
        self.last_sequence = 0
        given_up = [
            pending for batch in inflight if batch.given_up or not is_known for pending in batch.pending_commands
        ]
        # A later push of the same producer must not overtake a push that was given up.
        producers = _producers_of(given_up)
        overtaking: list[PendingCommand] = []
        for batch in inflight:
            if batch.given_up or not is_known:
                continue
            late = _pushed_by(producers, batch.pending_commands)
            overtaking += late
            pending_commands = [pending for pending in batch.pending_commands if pending not in late]
            if pending_commands:
                payload = self._encode([pending.command for pending in pending_commands], len(batch.payload))
                self._number(pending_commands, payload, batch.since_s)
        for pending in given_up:
            self._refuse(
                pending, LmqError("unknown_outcome", "this node was cut off; the result of the operation is lost")
            )
        for pending in overtaking:
            self._refuse(pending, _overtaking())
        self._refuse_waiting(self._take_waiting_of(producers), _overtaking())
        self.resend()

    def applied(self, sequence: int, applied: Applied) -> None:
        """Resolve a batch of this incarnation that the log contains."""
        if applied.status == "gap":
            self.resend_soon()
            return
        if applied.status != "applied" or not self._inflight or self._inflight[0].sequence != sequence:
            return
        batch = self._take_first()
        self._patience_s = RESEND_AFTER_S
        self._observe(batch)
        for pending, result in zip(batch.pending_commands, applied.results, strict=True):
            self._complete(pending, result)
        if self.traces is not None:
            self.traces.applied(batch.made_s, batch.pending_commands, applied.results)
        if not self.pending():
            self._idle.set()
        elif self._own or self._pending:
            self._flush_soon()

    def covered(self, last_sequence: int) -> None:
        """Fail the batches up to `last_sequence` as unknown: an installed snapshot contains them, but their results are lost."""
        while self._inflight and self._inflight[0].sequence <= last_sequence:
            for pending in self._take_first().pending_commands:
                error = LmqError(
                    "unknown_outcome", "the operation was applied while this node was cut off; its result is lost"
                )
                self._refuse(pending, error)
        self.resend()

    async def drained(self, grace_s: float) -> None:
        """Wait up to `grace_s` seconds until everything proposed so far has an outcome."""
        self._idle.clear()
        if self.pending():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._idle.wait(), grace_s)

    def retire(self, error: LmqError) -> None:
        """Refuse new commands of clients with `error`; accepted commands continue to their outcome."""
        self._refusing = error
        self._close_all()

    async def settle(self, grace_s: float, error: LmqError) -> None:
        """Wait as `drained` does, then fail pending commands with `error` and batches in flight as unknown.

        The node's own commands and the batches in flight are still sent.
        """
        await self.drained(grace_s)
        self._close_all()
        while self._pending:
            self._refuse(self._pending.popleft(), error)
        self._pending_bytes = 0
        self._made_room(self._pending_copies)
        self._give_up(list(self._inflight), f"the node stopped before the outcome was known: {error}")
        self._idle.set()

    def resume(self) -> None:
        """Accept commands of clients again after `retire`."""
        if not self._closed:
            self._refusing = None

    def close(self, error: LmqError) -> None:
        """Accept no more commands; fail pending ones with `error` and batches in flight as unknown."""
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
        self._close_all()

    def _take_first(self) -> _Batch:
        batch = self._inflight.popleft()
        self._inflight_bytes -= len(batch.payload)
        return batch

    def _observe(self, batch: _Batch) -> None:
        now_s = time.monotonic()
        self.commit_durations.observe(now_s - batch.made_s)
        for pending in batch.pending_commands:
            if not pending.requests:
                continue
            op = pending.command.op
            durations = self.durations.get(op)
            if durations is None:
                durations = self.durations[op] = Histogram()
            durations.observe(now_s - pending.since_s, len(pending.requests))

    def _complete(self, pending: PendingCommand, result: Any) -> None:
        pending.answered = True
        try:
            if isinstance(result, Fault):
                pending.sink.failed(pending, _error_of(result))
            else:
                pending.sink.completed(pending, result)
        except Exception:
            # An error in one client's reply must stop neither replication nor the replies to other clients.
            log.exception("reply failed", op=pending.command.op)

    def _refuse(self, pending: PendingCommand, error: LmqError) -> None:
        if pending.answered:
            return
        pending.answered = True
        self.failed_total[error.code] += len(pending.requests)
        try:
            pending.sink.failed(pending, error)
        except Exception:
            log.exception("error reply failed", op=pending.command.op)

    def _sweep(self) -> None:
        """Give up commands that have waited too long, and resend batches that may have been lost."""
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
        """Fail the commands of these batches once, with an unknown outcome."""
        for batch in batches:
            if not batch.given_up:
                batch.given_up = True
                for pending in batch.pending_commands:
                    self._refuse(pending, LmqError("unknown_outcome", reason))

    def _refuse_old_pending(self, now: float) -> None:
        """Refuse commands that no leader took in time, and later pushes of their producers, which must not overtake them."""
        refused: list[PendingCommand] = []
        for waiting in (self._own, self._pending):
            while waiting and now - waiting[0].since_s > NO_LEADER_AFTER_S:
                refused.append(waiting.popleft())
        refused += self._take_waiting_of(_producers_of(refused))
        reason = f"no leader has taken the request within {NO_LEADER_AFTER_S:g} s; it was not applied"
        self._refuse_waiting(refused, LmqError("no_leader", reason))

    def _take_waiting_of(self, producers: set[bytes]) -> list[PendingCommand]:
        """Remove and return the pending commands of these producers."""
        taken = _pushed_by(producers, self._pending)
        if taken:
            self._pending = deque(pending for pending in self._pending if producer_of(pending.command) not in producers)
        return taken

    def _refuse_waiting(self, pending_commands: list[PendingCommand], error: LmqError) -> None:
        """Refuse commands that were just removed from the pending ones."""
        for pending in pending_commands:
            self._pending_bytes -= pending.size_bytes
            self._made_room(pending.copies)
            self._close(pending)
            self._refuse(pending, error.again())


def producer_of(command: Command) -> bytes | None:
    """Return the producer that numbers the pushes of a command, None if they are not numbered."""
    return command.producer if isinstance(command, Push | PushRows) else None


def _producers_of(pending_commands: Iterable[PendingCommand]) -> set[bytes]:
    found = {producer_of(pending.command) for pending in pending_commands}
    return {producer for producer in found if producer is not None}


def _pushed_by(producers: set[bytes], pending_commands: Iterable[PendingCommand]) -> list[PendingCommand]:
    return [pending for pending in pending_commands if producer_of(pending.command) in producers] if producers else []


def _overtaking() -> LmqError:
    return LmqError(
        "no_leader", "the cluster has not confirmed an earlier push of the same producer; this one was not applied"
    )


def _error_of(fault: Fault) -> LmqError:
    if fault.code:
        return LmqError(fault.code, fault.reason)
    return LmqError("bad_request", f"the state machine refused the command: {fault.reason}")
