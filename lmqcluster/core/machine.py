"""The state machine: the table of its commands, and how a batch of them is applied."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from .applied import Applied
from .command_copies import copies_of
from .handlers.bulk import BulkCommands
from .handlers.cluster import ClusterCommands
from .handlers.move_tasks import MoveTaskCommands
from .handlers.polls import PollCommands
from .handlers.pull import PullCommands
from .handlers.push import PushCommands
from .handlers.queues import QueueCommands
from .handlers.schedules import ScheduleCommands
from .handlers.sessions import SessionCommands
from .handlers.settle import SettleCommands
from .handlers.stream_pushes import StreamPushes
from .handlers.transactions import Transactions
from .handlers.waiting_pushes import WaitingPushCommands
from .log.commands import Command, Compile, Encoded, Op, decode
from .log.results import Fault, IncompatibleVersionError, RefusedError
from .messages.bodies import HasName
from .messages.pages import PageError
from .messages.pre_images import PreImages
from .prefetch import pages_ahead
from .snapshot.records import Restoration
from .snapshot.view import SnapshotView
from .state.state import State

__all__ = ["Machine"]

_Handlers = dict[int, Callable[..., Any]]


class Machine:
    """The commands, and the state that they change.

    Args:
        compile_pattern: the engine of regular expressions.
        state: a state to continue with; None for an empty one.

    Attributes:
        state: the state.
    """

    def __init__(self, compile_pattern: Compile, state: State | None = None) -> None:
        self.state = State(compile_pattern) if state is None else state
        self._waiting = WaitingPushCommands(self.state)
        polls = PollCommands(self.state)
        self._handlers = {
            **self._push_handlers(polls),
            **self._delivery_handlers(polls),
            **self._queue_handlers(polls),
            **self._batch_handlers(),
            **self._session_handlers(),
            **self._cluster_handlers(),
            **self._schedule_handlers(),
        }

    def _push_handlers(self, polls: PollCommands) -> _Handlers:
        pushes, streams = PushCommands(self.state, polls, self._waiting), StreamPushes(self.state)
        return {
            Op.PUSH: pushes.push,
            Op.PUSH_ROWS: pushes.push_rows,
            Op.PUSH_ATTEMPTS: pushes.push_attempts,
            Op.PUSH_EACH: pushes.push_each,
            Op.CANCEL_PUSH: self._waiting.cancel,
            Op.PUSH_STREAM: streams.push,
            Op.BEGIN_EPOCH: streams.begin_epoch,
            Op.FINISH_EPOCH: streams.finish_epoch,
            Op.END_JOBS: streams.end_jobs,
        }

    def _delivery_handlers(self, polls: PollCommands) -> _Handlers:
        pulls, settlements = PullCommands(self.state), SettleCommands(self.state)
        return {
            Op.PULL: pulls.pull,
            Op.PULL_FIRST: pulls.pull_first,
            Op.POLL: polls.poll,
            Op.ACK: settlements.ack,
            Op.NACK: settlements.nack,
            Op.EXTEND: settlements.extend,
            Op.UPDATE: polls.update,
            Op.DELETE_POLLED: polls.delete,
            Op.TRANSACTION: Transactions(self.state).run,
        }

    def _queue_handlers(self, polls: PollCommands) -> _Handlers:
        queues, bulk, tasks = QueueCommands(self.state), BulkCommands(self.state), MoveTaskCommands(self.state)
        return {
            Op.CREATE: queues.create,
            Op.DELETE: queues.delete,
            Op.SET_PROPERTIES: queues.set_properties,
            Op.SET_DEFAULTS: queues.set_defaults,
            Op.SUSPEND: queues.suspend,
            Op.BIND: queues.bind,
            Op.PURGE: bulk.purge,
            Op.MOVE: bulk.move,
            Op.REDRIVE: bulk.redrive,
            Op.START_MOVE_TASK: tasks.start,
            Op.CANCEL_MOVE_TASK: tasks.cancel,
            Op.SET_POLL_LIMITS: polls.set_limits,
        }

    def _batch_handlers(self) -> _Handlers:
        return {
            Op.CLAIM: self.state.batches.claim,
            Op.RESERVE: self.state.batches.reserve,
            Op.RENEW: self.state.batches.renew,
            Op.SETTLE_BATCHES: self.state.batches.settle,
            Op.ABANDON_BATCHES: self.state.batches.abandon,
        }

    def _session_handlers(self) -> _Handlers:
        sessions = SessionCommands(self.state)
        return {
            Op.OPEN_SESSION: sessions.open,
            Op.RENEW_SESSION: sessions.renew,
            Op.END_SESSION: sessions.end,
            Op.PULL_IN_SESSION: sessions.pull,
            Op.LEAVE_QUEUE: sessions.leave,
            Op.LOCK: sessions.lock,
            Op.UNLOCK: sessions.unlock,
        }

    def _cluster_handlers(self) -> _Handlers:
        cluster = ClusterCommands(self.state)
        return {
            Op.BARRIER: cluster.barrier,
            Op.SET_SALT: cluster.set_salt,
            Op.UPGRADE: cluster.upgrade,
            Op.SET_TIME: cluster.set_time,
            Op.DIGEST: cluster.digest,
            Op.REPORT_DIGEST: cluster.report_digest,
            Op.SET_TOKEN: cluster.set_token,
            Op.DELETE_TOKEN: cluster.delete_token,
            Op.SET_API_KEY: cluster.set_api_key,
        }

    def _schedule_handlers(self) -> _Handlers:
        schedules = ScheduleCommands(self.state)
        return {
            Op.SET_SCHEDULE: schedules.set,
            Op.CHANGE_SCHEDULE: schedules.change,
            Op.SUPPLY_TIMES: schedules.supply,
            Op.REPORT_CLOCK: schedules.report_clock,
            Op.SET_SCHEDULE_CLOCK: schedules.set_clock,
        }

    # --- applying -------------------------------------------------------------------------------------------------

    def apply(
        self, now_us: int, origin: bytes, incarnation: int, sequence: int, commands: Iterable[Encoded]
    ) -> Applied:
        """Apply one batch of the node `origin`, stamped by the leader with `now_us`.

        A command that cannot be carried out yields a `Fault`, on every replica alike.

        Raises:
            IncompatibleVersionError: the program is too old for this log; the node must stop.
        """
        state = self.state
        state.now_us = max(state.now_us, now_us)
        state.ready, state.created, state.deleted, state.notices = [], [], [], []
        if state.pager.sparse:
            # Only chunks that earlier batches made sparse, so that the pages needed are known ahead.
            state.pager.gather_again(self._touch)
        if state.now_us >= state.expiry.next_us:
            state.expiry.run(state.now_us)
        status = state.node_sequences.admit(origin, incarnation, sequence)
        if status != "applied":
            return Applied(status, [], state.ready, notices=state.notices)
        results = [self._execute(command) for command in commands]
        if state.waiting_pushes.gaining:
            self._waiting.serve()
        return Applied(status, results, state.ready, state.created, state.deleted, state.notices)

    def pages_ahead(self, now_us: int, commands: list[Encoded]) -> list[bytes]:
        """Return the pages that a batch of these commands needs if it is applied next at this log time, as far as foreseeable.

        Reading a page in vain is harmless; a page that is needed but not listed is read when it is needed.
        """
        return pages_ahead(self.state, max(self.state.now_us, now_us), commands)

    def copies_of(self, command: Command) -> int:
        """Return about how many copies of its messages a command stores, for bound queues and aliases; see `copies_of`."""
        return copies_of(self.state, command)

    def _touch(self, queue: HasName) -> None:
        self.state.touched(self.state.queues[queue.name])

    def _execute(self, encoded: Encoded) -> Any:
        try:
            return self._handlers[encoded[0]](decode(encoded))
        except RefusedError as exc:
            return Fault(exc.reason, exc.code)
        except (MemoryError, IncompatibleVersionError, PageError):
            # A replica that ran out of memory, is too old, or lost a page has diverged from the others: it must stop.
            raise
        except Exception as exc:  # noqa: BLE001 - the state machine must be total
            return Fault(f"{type(exc).__name__}: {exc}")

    # --- snapshots ------------------------------------------------------------------------------------------------

    def snapshot(self) -> Iterator[list[Any]]:
        """Return the whole state as a sequence of plain records; equal states give equal records.

        The machine must not change until the last record is read; `freeze_view` has no such condition.
        """
        return SnapshotView(self.state).records()

    def freeze_view(self, *, pages: bool = False) -> SnapshotView:
        """Return a view of the state as of now, readable while the machine continues; the caller must close it.

        With `pages`, backlogs are written as the names of pages, which the machine's store keeps, instead of
        messages.

        Raises:
            RuntimeError: another view is open.
        """
        state = self.state
        if state.view is not None:
            raise RuntimeError("a snapshot view is open already")
        state.revision += 1
        view = SnapshotView(state, PreImages(state.last_sequence), state.revision, pages=pages)
        state.view = view
        return view

    @classmethod
    def restore(cls, compile_pattern: Compile, records: Iterable[list[Any]]) -> Machine:
        """Build the machine whose `snapshot` gave the records.

        Raises:
            ValueError: the records are not a complete snapshot in the format of this program.
        """
        restoration = Restoration(State(compile_pattern))
        for record in records:
            restoration.take(record)
        return cls(compile_pattern, restoration.finish())
