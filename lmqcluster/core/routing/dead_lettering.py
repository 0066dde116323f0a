"""What follows when messages leave a queue; those that it gives up go to the queues that its options name."""

from __future__ import annotations

from typing import Protocol

from ..messages.message import Message, Origin, RichMessage, Traits
from ..queue.queue import Queue
from .admission import Admission

__all__ = ["EXHAUSTED", "EXPIRED", "DeadLetterRouter"]

EXHAUSTED, EXPIRED = b"exhausted", b"expired"


class ExitState(Protocol):
    """What it needs of the queues' state."""

    now_us: int
    intake: Admission

    def existing(self, name: bytes) -> Queue | None:
        """The queue of that name, ready to be changed, None if there is none."""

    def add(self, name: bytes, owner: bytes) -> Queue:
        """Make the queue."""

    def note_due(self, queue: Queue) -> None:
        """Messages of the queue may be due earlier than before."""

    def note_room(self, queue: Queue) -> None:
        """The queue may have room for pushes that wait."""


class DeadLetterRouter:
    """Passes messages on, with body, headers, label, group, and where they come from."""

    def __init__(self, state: ExitState) -> None:
        self._state = state

    def changed(self, queue: Queue) -> None:
        """The next of a group may be due, there may be room, or the queue may be empty and too old."""
        self._state.note_due(queue)
        if queue.pushes_waiting:
            self._state.note_room(queue)

    def expired(self, queue: Queue, message: Message) -> None:
        """The message's time is over."""
        options = queue.settings.options
        if options is not None and options.expire_to:
            self._pass_on(queue, message, options.expire_to, EXPIRED)

    def exhausted(self, queue: Queue, message: Message) -> None:
        """The message has no deliveries left."""
        options = queue.settings.options
        if options is not None and options.dead_letters:
            self._pass_on(queue, message, options.dead_letters, EXHAUSTED)

    def _pass_on(self, queue: Queue, message: Message, destination: bytes, reason: bytes) -> None:
        state = self._state
        target = self.target(queue, destination)
        before = message.traits if isinstance(message, RichMessage) else Traits()
        origin = Origin(queue.name, reason, state.now_us, message.delivered, message.sequence, message.pushed_us)
        state.intake.receive(target, message, before._replace(expires_us=0, origin=origin))

    def send(self, queue: Queue, message: RichMessage, destination: bytes) -> None:
        """Store a message that has left a queue in another one, as one that comes from nowhere."""
        traits = message.traits._replace(expires_us=0, origin=None)
        self._state.intake.receive(self.target(queue, destination), message, traits)

    def target(self, queue: Queue, destination: bytes) -> Queue:
        """The queue of that name that takes what another one gives up, made if need be."""
        # Made for the same owner whatever it has: a message must not be lost for want of a queue.
        target = self._state.existing(destination)
        return self._state.add(destination, queue.owner) if target is None else target
