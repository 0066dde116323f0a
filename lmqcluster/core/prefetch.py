"""The pages that a batch needs, listed before it is applied, so that a node waits for a missing page instead of failing midway.

Whether a page is in memory never changes a result, so replicas need not agree on any of this.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import Protocol

from .log.command_layout import (
    deliveries_returned_by,
    session_released_by,
    source_of_move,
    sources_of_pull,
    steps_of,
    target_of_push,
)
from .log.commands import Command
from .messages.bodies import Body
from .messages.message import Message
from .queue.pager import Pager
from .queue.queue import Queue
from .sessions.sessions import END_STEPS, Sessions
from .timers.lease_expiry import LeaseExpiry
from .timers.message_timers import RichTimers

__all__ = ["PAGES_MAX", "pages_ahead"]

PAGES_MAX = 64
"""Most pages listed for one batch; others are read when they are needed."""
_QUEUES_MAX = 1_000
"""Most queues that are visited because a timer is due, and most messages of each."""
_ENDING_MAX = 10_000
"""Most of these messages in total: five times as many as may expire or lose their leases in one batch."""


class _State(Protocol):
    queues: dict[bytes, Queue]
    pager: Pager
    timers: RichTimers
    lease_watch: LeaseExpiry
    sessions: Sessions


def pages_ahead(state: _State, now_us: int, commands: list[Command]) -> list[bytes]:
    """Implement `Machine.pages_ahead`."""
    pager = state.pager
    if not (pager.sparse or pager.paged_messages or pager.paged_body_bytes):
        return []
    steps = list(chain.from_iterable(map(steps_of, commands)))
    found = dict.fromkeys(chunk.page for chunk in pager.absent_sparse()) if pager.sparse else {}
    if pager.paged_messages:
        found |= dict.fromkeys(islice(_pages_of_queues(state, steps), PAGES_MAX))
    if pager.paged_body_bytes:
        ending = islice(_expiring_messages(state, now_us), _ENDING_MAX)
        of_sessions = islice(_deliveries_of_sessions(state, now_us, steps), END_STEPS)
        returned = _leased(state, chain(_deliveries_given_back(steps), of_sessions))
        moving = chain(ending, returned, _messages_being_moved(state, steps), _shortened(state, steps))
        found |= dict.fromkeys(islice(_pages_of_bodies(moving), PAGES_MAX))
    return list(islice(found, PAGES_MAX))


# --- messages in line -------------------------------------------------------------------------------------------------


def _pages_of_queues(state: _State, steps: list[Command]) -> Iterator[bytes]:
    """Yield the pages of the chunks that are next in the line of a queue."""
    taken: dict[bytes, int] = {}
    for step in steps:
        names, count = sources_of_pull(step)
        if not count:
            names, count = _discarded(state, step)
        for name in names:
            taken[name] = taken.get(name, 0) + count
    for name, count in taken.items():
        queue = state.queues.get(name)
        if queue is not None and queue.backlog is not None:
            yield from (chunk.page for chunk in queue.backlog.absent(count - len(queue.ready)))


def _discarded(state: _State, step: Command) -> tuple[list[bytes], int]:
    """Return the queue that discards old messages for a push, and about how many."""
    name, count = target_of_push(step)
    queue = state.queues.get(name)
    options = None if queue is None else queue.settings.options
    return ([name], count) if options is not None and options.discard_old_when_full else ([], 0)


# --- bodies of messages that go elsewhere ---------------------------------------------------------------------------------


def _pages_of_bodies(messages: Iterable[Message]) -> Iterator[bytes]:
    """Yield the pages of the bodies of these messages."""
    for message in messages:
        chunk = message.content.missing() if isinstance(message.content, Body) else None
        if chunk is not None:
            yield chunk.page


def _expiring_messages(state: _State, now_us: int) -> Iterator[Message]:
    """Yield messages that expire, or whose last lease expires, and that go to another queue."""
    for queue in islice(state.timers.due(now_us), _QUEUES_MAX):
        options = queue.settings.options
        if queue.gathered is not None and queue.rich is not None and options is not None and options.expire_to:
            yield from islice(queue.rich.expired(now_us), _QUEUES_MAX)
    for name in islice(state.lease_watch.due(now_us), _QUEUES_MAX):
        leaving = state.queues.get(name)
        if leaving is not None and leaving.gathered is not None and _has_dead_letter_target(leaving):
            ended = islice(leaving.leases.ended(now_us), _QUEUES_MAX)
            yield from (one for one in ended if one.remaining <= 0 or leaving.is_expired(one, now_us))


def _leased(state: _State, deliveries: Iterable[tuple[int, bytes]]) -> Iterator[Message]:
    """Yield leased messages that are dead-lettered, or enter a backlog, which stores them with their bodies.

    The batch itself may start the backlog, so it does not matter whether there is one now.
    """
    for number, name in deliveries:
        queue = state.queues.get(name)
        message = None if queue is None else queue.leases.messages.get(number)
        if message is not None:
            yield message


def _deliveries_given_back(steps: list[Command]) -> Iterator[tuple[int, bytes]]:
    """Yield number and queue of the deliveries that clients give back one by one."""
    for step in steps:
        name, numbers = deliveries_returned_by(step)
        yield from ((number, name) for number in numbers)


def _deliveries_of_sessions(state: _State, now_us: int, steps: list[Command]) -> Iterator[tuple[int, bytes]]:
    """Yield number and queue of the deliveries of sessions that end, or that give some back."""
    yield from state.sessions.ending(now_us)
    for step in steps:
        yield from state.sessions.held(session_released_by(step))


def _messages_being_moved(state: _State, steps: list[Command]) -> Iterator[Message]:
    """Yield messages that are moved or redriven, those of a sorted line in its order."""
    for step in steps:
        name, label, count = source_of_move(step)
        queue = state.queues.get(name)
        if queue is None or queue.gathered is None:
            continue
        yield from islice(queue.ready, count)
        if queue.rich is not None and label is None:
            yield from islice(chain(queue.rich.waiting, queue.rich.scheduled), count)
        elif queue.rich is not None and label is not None:
            yield from queue.rich.moved(label, count)


def _shortened(state: _State, steps: list[Command]) -> Iterator[Message]:
    """Yield messages of short lines that move to backlogs because all queues together hold too much."""
    if not state.pager.is_crowded():
        return
    for name in dict.fromkeys(
        name for step in steps for name in (target_of_push(step)[0], deliveries_returned_by(step)[0])
    ):
        queue = state.queues.get(name)
        if queue is not None and queue.backlog is None and queue.gathered is not None:
            yield from islice(queue.ready, state.pager.sizes.crowd_head, None)


def _has_dead_letter_target(queue: Queue) -> bool:
    """Return whether the queue forwards expired or exhausted messages to another one."""
    options = queue.settings.options
    return options is not None and bool(options.dead_letters or options.expire_to)
