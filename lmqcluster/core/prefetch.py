"""The pages that a batch needs, listed before it is applied, so that a node waits for a missing page instead of failing midway.

Whether a page is in memory never changes a result, so replicas need not agree on any of this.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import Final

from .log.commands import Encoded, Transaction, decode
from .log.touches import Copies, Head, Moved, Released, Returned, Tail, Touch
from .messages.bodies import Body
from .messages.message import Message
from .queue.queue import Queue
from .schedules.table import STEPS_MAX
from .sessions.sessions import END_STEPS
from .state.state import State

__all__ = ["PAGES_MAX", "pages_ahead"]

PAGES_MAX = 64
"""Most pages listed for one batch; others are read when they are needed."""
_QUEUES_MAX = 1_000
"""Most queues that are visited because a timer is due, and most messages of each."""
_HELD_MAX = 100
"""Most held messages of a queue that are looked at."""
_MOVED_MAX = 10_000
_ENDING_MAX = 10_000
"""Most of these messages in total: five times as many as may expire or lose their leases in one batch."""


def pages_ahead(state: State, now_us: int, commands: list[Encoded]) -> list[bytes]:
    """Implement `Machine.pages_ahead`."""
    pager = state.pager
    if not (pager.sparse or pager.paged_messages or pager.paged_body_bytes):
        return []
    touches = [touch for command in commands for touch in _touches_of(command)]
    touches += state.move_tasks.touches(now_us)
    touches += [Tail(queue, 1) for queue in state.schedules.upcoming(now_us, STEPS_MAX)]
    touches += [Head(queue.name, _QUEUES_MAX) for queue in _aging(state, now_us)]
    found = dict.fromkeys(chunk.page for chunk in pager.absent_sparse()) if pager.sparse else {}
    if pager.paged_messages:
        found |= dict.fromkeys(islice(_pages_of_queues(state, touches), PAGES_MAX))
    if pager.paged_body_bytes:
        ending = islice(_expiring_messages(state, now_us), _ENDING_MAX)
        of_sessions = islice(_deliveries_of_sessions(state, now_us, touches), END_STEPS)
        returned = _leased(state, chain(_returned_deliveries(touches), of_sessions))
        skipped = _undeliverable(state, now_us, touches)
        moving = chain(ending, returned, skipped, _messages_being_moved(state, touches), _shortened(state, touches))
        found |= dict.fromkeys(islice(_pages_of_bodies(moving), PAGES_MAX))
    return list(islice(found, PAGES_MAX))


# --- touches ----------------------------------------------------------------------------------------------------------

_BYTES: Final = frozenset((bytes,))
_NUMBER: Final = frozenset((int,))
_LIST: Final = frozenset((list,))
_TYPES: Final[dict[type[Touch], tuple[frozenset[type], ...]]] = {
    Head: (_BYTES, _NUMBER),
    Tail: (_BYTES, _NUMBER),
    Copies: (_LIST,),
    Returned: (_BYTES, _LIST),
    Released: (_NUMBER,),
    Moved: (_BYTES, frozenset((bytes, type(None))), _NUMBER, frozenset((list, type(None)))),
}
"""The types that the fields of a touch have if its command is sound."""


def _touches_of(encoded: Encoded) -> Iterator[Touch]:
    """Yield the touches of a command of the log; those of a broken command, which results in a `Fault`, are left out."""
    try:
        command = decode(encoded)
        touches = command.touches()
    except (KeyError, TypeError):
        return
    if isinstance(command, Transaction):
        steps = command.steps if type(command.steps) is list else []
        yield from chain.from_iterable(_touches_of(step) for step in steps if type(step) is list and _is_step(step))
    yield from (touch for touch in touches if _is_sound(touch))


def _is_sound(touch: Touch) -> bool:
    return all(type(value) in types for value, types in zip(touch, _TYPES[type(touch)], strict=True))


def _is_step(encoded: Encoded) -> bool:
    return bool(encoded) and encoded[0] != Transaction.op


# --- messages in line -------------------------------------------------------------------------------------------------


def _pages_of_queues(state: State, touches: list[Touch]) -> Iterator[bytes]:
    """Yield the pages of the chunks that are next in the line of a queue."""
    taken: dict[bytes, int] = {}
    for touch in touches:
        if isinstance(touch, Head) or (isinstance(touch, Tail) and _discards(state, touch.queue)):
            taken[touch.queue] = taken.get(touch.queue, 0) + max(0, touch.most)
    for name, count in taken.items():
        queue = state.queues.get(name)
        if queue is not None and queue.store.backlog is not None:
            yield from (chunk.page for chunk in queue.store.backlog.absent(count - len(queue.store.ready)))


def _discards(state: State, name: bytes) -> bool:
    """Return whether the queue discards an old message for each push when it is full."""
    queue = state.queues.get(name)
    options = None if queue is None else queue.settings.options
    return options is not None and options.discard_old_when_full


# --- bodies of messages that go elsewhere ---------------------------------------------------------------------------------


def _pages_of_bodies(messages: Iterable[Message]) -> Iterator[bytes]:
    """Yield the pages of the bodies of these messages."""
    for message in messages:
        chunk = message.content.missing() if isinstance(message.content, Body) else None
        if chunk is not None:
            yield chunk.page


def _aging(state: State, now_us: int) -> Iterator[Queue]:
    """Yield queues in which the first ready message has reached the maximum age."""
    due = islice(state.timers.due(now_us), _QUEUES_MAX)
    return (queue for queue in due if queue.store.aged_us() <= now_us)


def _expiring_messages(state: State, now_us: int) -> Iterator[Message]:
    """Yield messages that expire, or whose last lease ends, and that go to another queue."""
    for queue in islice(state.timers.due(now_us), _QUEUES_MAX):
        options = queue.settings.options
        if (
            queue.store.gathered is not None
            and queue.store.rich is not None
            and options is not None
            and options.expire_to
        ):
            yield from islice(queue.store.rich.expired(now_us), _QUEUES_MAX)
    for name in islice(state.lease_watch.due(now_us), _QUEUES_MAX):
        leaving = state.queues.get(name)
        if leaving is not None and leaving.store.gathered is not None and _has_dead_letter_target(leaving):
            ended = islice(leaving.store.leases.ended(now_us), _QUEUES_MAX)
            yield from (one for one in ended if _is_leaving(leaving, one, now_us))


def _undeliverable(state: State, now_us: int, touches: list[Touch]) -> Iterator[Message]:
    """Yield messages that pulls meet in line although they have expired or have no deliveries left."""
    for touch in touches:
        queue = state.queues.get(touch.queue) if isinstance(touch, Head) else None
        if not isinstance(touch, Head) or queue is None or queue.store.gathered is None:
            continue
        store, rich = queue.store, queue.store.rich
        # Whichever line comes first: the messages of the others may all be later.
        yield from _passed_over(queue, now_us, [store.ready], touch.most)
        if rich is None:
            continue
        yield from _passed_over(queue, now_us, [rich.waiting], touch.most)
        if rich.fair is not None:
            # A group has its turn until it delivers a message.
            yield from _passed_over(queue, now_us, rich.fair.in_turn(max(0, min(touch.most, _QUEUES_MAX))), 1)
        # Held messages get their turn with the one before them, or if the leases of their groups end with the batch.
        held = islice(rich.held, _HELD_MAX)
        yield from (message for message in held if store.is_used_up(message) or store.is_expired(message, now_us))


def _passed_over(queue: Queue, now_us: int, lines: Iterable[Iterable[Message]], most: int) -> Iterator[Message]:
    """Yield messages that cannot be delivered, of each line those before `most` others."""
    steps = iter(range(_QUEUES_MAX))
    for line in lines:
        left = most
        for message, _ in zip(line, steps, strict=False):
            if left <= 0:
                break
            if _is_leaving(queue, message, now_us):
                yield message
            else:
                left -= 1


def _is_leaving(queue: Queue, message: Message, now_us: int) -> bool:
    """Return whether a message leaves the queue instead of being delivered again."""
    return message.remaining <= 0 or queue.store.is_used_up(message) or queue.store.is_expired(message, now_us)


def _leased(state: State, deliveries: Iterable[tuple[int, bytes]]) -> Iterator[Message]:
    """Yield leased messages that are dead-lettered, or enter a backlog, which stores them with their bodies.

    The batch itself may start the backlog, so it does not matter whether there is one now.
    """
    for number, name in deliveries:
        queue = state.queues.get(name)
        message = None if queue is None else queue.store.leases.messages.get(number)
        if message is not None:
            yield message


def _returned_deliveries(touches: list[Touch]) -> Iterator[tuple[int, bytes]]:
    """Yield number and queue of the deliveries that clients give back one by one."""
    for touch in touches:
        if isinstance(touch, Returned):
            yield from ((number, touch.queue) for number in touch.numbers if type(number) is int)


def _deliveries_of_sessions(state: State, now_us: int, touches: list[Touch]) -> Iterator[tuple[int, bytes]]:
    """Yield number and queue of the deliveries of sessions that end, or that give some back."""
    yield from state.sessions.ending(now_us)
    for touch in touches:
        if isinstance(touch, Released):
            yield from state.sessions.held(touch.session)


def _messages_being_moved(state: State, touches: list[Touch]) -> Iterator[Message]:
    """Yield messages that are moved or redriven, those of a sorted line in its order."""
    for touch in touches:
        queue = state.queues.get(touch.queue) if isinstance(touch, Moved) else None
        if not isinstance(touch, Moved) or queue is None or queue.store.gathered is None:
            continue
        count = max(0, min(touch.most, _MOVED_MAX))
        yield from islice(queue.store.ready, count)
        if queue.store.rich is not None and touch.label is None:
            yield from islice(chain(queue.store.rich.waiting, queue.store.rich.scheduled), count)
            if queue.store.rich.fair is not None:
                yield from islice(chain.from_iterable(queue.store.rich.fair.in_turn(count)), count)
        elif queue.store.rich is not None and touch.label is not None:
            given = touch.sequences
            numbers = None if given is None else [one for one in given[:_MOVED_MAX] if type(one) is int]
            yield from queue.store.rich.moved(touch.label, count, numbers)


def _shortened(state: State, touches: list[Touch]) -> Iterator[Message]:
    """Yield messages of short lines that move to backlogs because all queues together hold too much."""
    if not state.pager.is_crowded():
        return
    for name in dict.fromkeys(touch.queue for touch in touches if isinstance(touch, Tail | Returned)):
        queue = state.queues.get(name)
        if queue is not None and queue.store.backlog is None and queue.store.gathered is not None:
            yield from islice(queue.store.ready, state.pager.sizes.crowd_head, None)


def _has_dead_letter_target(queue: Queue) -> bool:
    """Return whether the queue forwards expired or exhausted messages to another one."""
    options = queue.settings.options
    return options is not None and bool(options.dead_letters or options.expire_to)
