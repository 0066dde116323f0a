"""The state machine: the table of its commands, and how a batch of them is applied."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from .applied import Applied
from .command_copies import copies_of
from .handlers.bulk import Operations
from .handlers.cluster import ClusterCommands
from .handlers.keyed_pushes import KeyedPushes
from .handlers.polls import PollCommands
from .handlers.queues import QueueCommands
from .handlers.sessions import SessionCommands
from .handlers.stream_pushes import StreamPushes
from .handlers.traits import TraitCommands
from .handlers.transactions import Transactions
from .handlers.waiting_pushes import WaitingPushCommands
from .log.commands import Command, Compile, Fault, IncompatibleVersionError, Op, RefusedError
from .messages.bodies import HasName
from .messages.pages import PageError
from .messages.pre_images import PreImages
from .prefetch import pages_ahead
from .snapshot.records import Restoration
from .snapshot.view import SnapshotView
from .state.named_queues import NamedQueues
from .state.state import State

__all__ = ["Machine"]

_Handlers = dict[int, Callable[..., Any]]


class Machine(State):
    """The state, and the commands that change it."""

    def __init__(self, compile_pattern: Compile) -> None:
        super().__init__(compile_pattern)
        self._pushes_that_wait = WaitingPushCommands(self)
        self._handlers = {
            **self._queue_handlers(),
            **self._message_handlers(),
            **self._cluster_handlers(),
            **self._batch_handlers(),
            **self._session_handlers(),
            **self._poll_handlers(),
        }

    def _queue_handlers(self) -> _Handlers:
        queues, operations = QueueCommands(self), Operations(self)
        return {
            Op.PUSH: queues.push,
            Op.PULL: queues.pull,
            Op.PULL_FIRST: NamedQueues(self).pull_first,
            Op.ACK: queues.ack,
            Op.NACK: queues.nack,
            Op.EXTEND: queues.extend,
            Op.PUT_BACK: self.put_back,
            Op.SET_PROPERTIES: queues.set_properties,
            Op.CLEAR_PROPERTIES: queues.clear_properties,
            Op.CREATE_FOR: queues.create_for,
            Op.DELETE: self.delete,
            Op.SET_DEFAULTS: queues.set_defaults,
            Op.PURGE: operations.purge,
            Op.MOVE: operations.move,
            Op.SUSPEND: operations.suspend,
            Op.BIND: queues.bind,
            Op.UNBIND: queues.unbind,
        }

    def _message_handlers(self) -> _Handlers:
        pushes, marked, traits = KeyedPushes(self), StreamPushes(self), TraitCommands(self)
        return {
            Op.PUSH_ITEMS: pushes.push_items,
            Op.PUSH_EACH: pushes.push_each,
            Op.PUSH_MARKED: marked.push,
            Op.END_JOBS: marked.end_jobs,
            Op.BEGIN_EPOCH: marked.begin_epoch,
            Op.FINISH_EPOCH: marked.finish_epoch,
            Op.PUSH_TRAITS: traits.push,
            Op.PULL_LEASE: traits.pull,
            Op.GIVE_BACK: traits.give_back,
            Op.EXTEND_BY: traits.extend,
            Op.WITHDRAW: traits.withdraw,
            Op.REDRIVE: traits.redrive,
            Op.TRANSACTION: Transactions(self).run,
            Op.PUSH_OR_WAIT: self._pushes_that_wait.push,
            Op.CANCEL_PUSH: self._pushes_that_wait.cancel,
        }

    def _cluster_handlers(self) -> _Handlers:
        cluster = ClusterCommands(self)
        return {
            Op.BARRIER: cluster.barrier,
            Op.FOUND: cluster.found,
            Op.RENEW_SALT: cluster.renew_salt,
            Op.UPGRADE: cluster.upgrade,
            Op.DIGEST: cluster.digest,
            Op.REPORT_DIGEST: cluster.report_digest,
            Op.SET_TIME: cluster.set_time,
            Op.SET_TOKEN: cluster.set_token,
            Op.DELETE_TOKEN: cluster.delete_token,
        }

    def _batch_handlers(self) -> _Handlers:
        return {
            Op.CLAIM: self.batches.claim,
            Op.RESERVE: self.batches.reserve,
            Op.RENEW: self.batches.renew,
            Op.SETTLE_BATCHES: self.batches.settle,
            Op.ABANDON_BATCHES: self.batches.abandon,
            Op.DELETE_SUBSCRIPTION: self.batches.delete,
        }

    def _session_handlers(self) -> _Handlers:
        sessions = SessionCommands(self)
        return {
            Op.OPEN_SESSION: sessions.open,
            Op.RENEW_SESSION: sessions.renew,
            Op.END_SESSION: sessions.end,
            Op.PULL_IN_SESSION: sessions.pull,
            Op.LEAVE_QUEUE: sessions.leave,
            Op.LOCK: sessions.lock,
            Op.UNLOCK: sessions.unlock,
        }

    def _poll_handlers(self) -> _Handlers:
        polls = PollCommands(self)
        return {
            Op.CREATE_INDEXED: polls.create,
            Op.PUSH_EXISTING: polls.push,
            Op.POLL: polls.poll,
            Op.UPDATE: polls.update,
            Op.DELETE_POLLED: polls.delete,
            Op.SUSPEND_ENDPOINTS: polls.suspend,
            Op.THROTTLE: polls.throttle,
            Op.SET_API_KEY: self.api_keys.set,
            Op.DELETE_API_KEY: self.api_keys.delete,
        }

    # --- applying -------------------------------------------------------------------------------------------------

    def apply(
        self, now_us: int, origin: bytes, incarnation: int, sequence: int, commands: Iterable[Command]
    ) -> Applied:
        """Apply one batch of the node `origin`, stamped by the leader with `now_us`.

        A command that cannot be carried out yields a `Fault`, on every replica alike.

        Raises:
            IncompatibleVersionError: the program is too old for this log; the node must stop.
        """
        self.now_us = max(self.now_us, now_us)
        self.ready, self.created, self.deleted, self.notices = [], [], [], []
        if self.pager.sparse:
            # Only chunks that earlier batches made sparse, so that the pages needed are known ahead.
            self.pager.gather_again(self._touch)
        if self.now_us >= self.expiry.next_us:
            self.expiry.run(self.now_us)
        status = self.node_sequences.admit(origin, incarnation, sequence)
        if status != "applied":
            return Applied(status, [], self.ready, notices=self.notices)
        results = [self._execute(command) for command in commands]
        if self.waiting_pushes.gaining:
            self._pushes_that_wait.serve()
        return Applied(status, results, self.ready, self.created, self.deleted, self.notices)

    def pages_ahead(self, now_us: int, commands: list[Command]) -> list[bytes]:
        """Return the pages that a batch of these commands needs if it is applied next at this log time, as far as foreseeable.

        Reading a page in vain is harmless; a page that is needed but not listed is read when it is needed.
        """
        return pages_ahead(self, max(self.now_us, now_us), commands)

    def copies_of(self, command: Command) -> int:
        """Return about how many copies of its messages a command stores, for bound queues and aliases; see `copies_of`."""
        return copies_of(self, command)

    def _touch(self, queue: HasName) -> None:
        self.touched(self.queues[queue.name])

    def _execute(self, command: Command) -> Any:
        try:
            return self._handlers[command[0]](*command[1:])
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
        return SnapshotView(self).records()

    def freeze_view(self, *, pages: bool = False) -> SnapshotView:
        """Return a view of the state as of now, readable while the machine continues; the caller must close it.

        With `pages`, backlogs are written as the names of pages, which the machine's store keeps, instead of
        messages.

        Raises:
            RuntimeError: another view is open.
        """
        if self.view is not None:
            raise RuntimeError("a snapshot view is open already")
        self.revision += 1
        view = SnapshotView(self, PreImages(self.last_sequence), self.revision, pages=pages)
        self.view = view
        return view

    @classmethod
    def restore(cls, compile_pattern: Compile, records: Iterable[list[Any]]) -> Machine:
        """Build the machine whose `snapshot` gave the records.

        Raises:
            ValueError: the records are not a complete snapshot in the format of this program.
        """
        restoration = cls.restore_incrementally(compile_pattern)
        for record in records:
            restoration.take(record)
        return restoration.finish()

    @classmethod
    def restore_incrementally(cls, compile_pattern: Compile) -> Restoration[Machine]:
        """Return a restoration that takes the records of a snapshot one by one and returns the machine at the end."""
        return Restoration(cls(compile_pattern))
