"""Bugs in the commands that the naive model judges. Each is a patch for the duration of a run, as in `switches`."""

from __future__ import annotations

from typing import Any

from lmqcluster.core.dedup.attempts import Attempts
from lmqcluster.core.handlers import bulk, push
from lmqcluster.core.handlers.polls import PollCommands
from lmqcluster.core.handlers.pull import PullCommands
from lmqcluster.core.handlers.push import PushCommands
from lmqcluster.core.handlers.queues import QueueCommands
from lmqcluster.core.log.commands import Delete, Pull, PullFirst, PushEach, Suspend
from lmqcluster.core.messages.message import PLAIN_TRAITS
from lmqcluster.core.queue import store
from lmqcluster.core.queue.queue import Queue
from lmqcluster.core.routing import moving
from lmqcluster.core.state.batch_leases import BatchLeases
from lmqcluster.node.queues.sending.coalesced_result import CoalescedResult, _Shares
from tests.simulation.switches import switch

__all__ = ["PLANTED_MODELLED"]

_find = Attempts.find
_move_to = moving.move_to
_pull = PullCommands.pull
_push_each = PushCommands.push_each
_returnable = moving.returnable
_suspend = QueueCommands.suspend


def _only_the_latest(self: Attempts, owner: bytes, key: bytes, now_us: int) -> Any:
    """Know only the latest attempt of an owner."""
    owned = self._owned.get(owner)
    return None if owned is None or owned.rows[-1].key != key else _find(self, owner, key, now_us)


def _all_like_the_first(self: Any, pending: Any, result: Any) -> None:
    """Give each client of a shared command the results of the first one."""
    shares: list[CoalescedResult] = list(dict.fromkeys(pending.requests))
    for share in shares:
        share.outcome.set_result(None if result is None else result[: share.count])


def _from_the_first(self: PullCommands, command: PullFirst) -> Any:
    return _pull(self, Pull(command.queues[0], command.count))


def _for_the_first(self: PushCommands, command: PushEach) -> Any:
    return _push_each(self, PushEach(command.queues[:1], command.item))


def _never_resumed(self: QueueCommands, command: Suspend) -> Any:
    return _suspend(self, Suspend(command.queue, True))


def _emptied(self: QueueCommands, command: Delete) -> bool:
    """Remove the messages that are not leased, and keep the queue."""
    queue = self._state.existing(command.queue)
    return queue is not None and queue.withdraw(self._state.now_us, 1_000, also_delayed=True) is not None


def _without_sequences(queue: Queue, label: bytes, count: int, sources: Any, sequences: Any = None) -> Any:
    return _returnable(queue, label, count, sources)


def _one_more(state: Any, queue: Queue, target: Queue, count: int) -> int:
    """Move one message more than asked for."""
    return min(count, _move_to(state, queue, target, count + 1))


PLANTED_MODELLED: dict[str, Any] = {
    "snapshots without attempts": switch([(Attempts, "rows", lambda _: iter(()))]),
    "attempts end after a second": switch([(push, "ATTEMPT_US", 1_000_000)]),
    "only the latest attempt known": switch([(Attempts, "find", _only_the_latest)]),
    "results of another client": switch([(_Shares, "completed", _all_like_the_first)]),
    "repeated polls get other messages": switch([(PollCommands, "_polled_before", lambda *_: [])]),
    "suspended requests served": switch([(PollCommands, "_open", lambda self, name, _: self._queue(name))]),
    "throttles ignored": switch([(PollCommands, "_take_turn", lambda *_: None)]),
    "moved messages without group": switch([(store, "moved_traits", lambda _: PLAIN_TRAITS)]),
    "one message too many moved": switch([(bulk, "move_to", _one_more)]),
    "sequences of dead letters ignored": switch([(bulk, "returnable", _without_sequences)]),
    "pulls from the first queue named": switch([(PullCommands, "pull_first", _from_the_first)]),
    "copies for the first queue only": switch([(PushCommands, "push_each", _for_the_first)]),
    "queues suspended for ever": switch([(QueueCommands, "suspend", _never_resumed)]),
    "deleted queues only emptied": switch([(QueueCommands, "delete", _emptied)]),
    "consumers not fenced": switch([(BatchLeases, "may_use", lambda *_: True)]),
    "settled batches not acknowledged": switch([(BatchLeases, "_ack", lambda *_: True)]),
}
"""By name, the context manager of each bug."""
