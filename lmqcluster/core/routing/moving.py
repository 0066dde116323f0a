"""Many messages that go from one queue to another at once."""

from __future__ import annotations

from itertools import takewhile

from ..messages.message import RichMessage
from ..queue.queue import Queue
from ..state_view import StateView
from .dead_lettering import DeadLetterRouter

__all__ = ["move_to", "returnable", "send_back", "source_of"]


def move_to(state: StateView, queue: Queue, target: Queue, count: int) -> int:
    """Move up to `count` messages that could be pulled to the end of another queue, as new messages; return how many."""
    messages = queue.withdraw(state.now_us, count, also_delayed=False)
    queue.counters.moved_out_total += len(messages)
    target.append(state.now_us, state.last_sequence + 1, messages)
    state.last_sequence += len(messages)
    state.note_due(target)
    return len(messages)


def returnable(
    queue: Queue, label: bytes, count: int, sources: set[bytes] | None, sequences: list[int] | None = None
) -> list[RichMessage]:
    """Return up to `count` messages that the cluster has moved to a queue, up to the first that came from none of the sources."""
    found = [] if queue.store.rich is None else queue.store.rich.moved(label, count, sequences)
    return found if sources is None else list(takewhile(lambda message: source_of(message) in sources, found))


def send_back(
    state: StateView, exits: DeadLetterRouter, queue: Queue, found: list[RichMessage], target: bytes = b""
) -> int:
    """Send messages that the cluster has moved to a queue back to where they came from, or to `target`; return how many."""
    queue.remove(found, state.now_us)
    queue.counters.moved_out_total += len(found)
    for message in found:
        exits.send(queue, message, target or source_of(message))
    return len(found)


def source_of(message: RichMessage) -> bytes:
    """Return the queue from which the cluster has moved a message."""
    assert message.traits.origin is not None  # noqa: S101 - for the type checker
    return message.traits.origin.queue
