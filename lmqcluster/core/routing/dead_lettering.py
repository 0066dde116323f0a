"""Dead-lettering: messages that expire or have no deliveries left go to the queues that their queue's options name."""

from __future__ import annotations

from ..messages.message import Message, Origin, RichMessage, Traits, identity_of, moved_traits
from ..queue.queue import Queue
from ..state_view import StateView
from .admission import Admission

__all__ = ["EXHAUSTED", "EXPIRED", "DeadLetterRouter"]

EXHAUSTED, EXPIRED = b"exhausted", b"expired"


class DeadLetterRouter:
    """Forwards messages with body, attributes, label, group, and their origin."""

    def __init__(self, state: StateView, admission: Admission) -> None:
        self._state = state
        self._admission = admission

    def changed(self, queue: Queue) -> None:
        """Report a change: the next of a group may be due, there may be room, or the queue may be empty and too old."""
        self._state.note_due(queue)
        if queue.pushes_waiting:
            self._state.note_room(queue)

    def expired(self, queue: Queue, message: Message) -> None:
        """Forward a message that has expired, if the queue has a target for these."""
        options = queue.settings.options
        if options is not None and options.expire_to:
            self._pass_on(queue, message, options.expire_to, EXPIRED)

    def exhausted(self, queue: Queue, message: Message) -> None:
        """Dead-letter a message without deliveries left, if the queue has a target for these."""
        options = queue.settings.options
        if options is not None and options.dead_letters:
            self._pass_on(queue, message, options.dead_letters, EXHAUSTED)

    def lacks_target(self, queue: Queue) -> bool:
        """Return whether messages without deliveries left should go to a queue that does not exist or is of another kind.

        The kinds were compared when the property was set on the queue itself, but not if it has it by a rule or from its
        parent.
        """
        options = queue.settings.options
        if options is None or not options.dead_letters:
            return False
        target = self._state.existing(options.dead_letters)
        return target is None or target.is_fifo() is not queue.is_fifo()

    def _pass_on(self, queue: Queue, message: Message, destination: bytes, reason: bytes) -> None:
        state = self._state
        target = self.target(queue, destination)
        before = message.traits if isinstance(message, RichMessage) else Traits()
        present = (queue.name, reason, state.now_us, message.delivered, message.sequence, message.pushed_us)
        origin = Origin(*present, identity_of(message))
        self._admission.receive(target, message, before._replace(expires_us=0, origin=origin))

    def send(self, queue: Queue, message: RichMessage, destination: bytes) -> None:
        """Store a message that has left a queue in another one, without an origin."""
        self._admission.receive(self.target(queue, destination), message, moved_traits(message))

    def target(self, queue: Queue, destination: bytes) -> Queue:
        """Return the queue that takes messages forwarded by another one; create it if needed."""
        # Created for the same owner regardless of its quota: a message must not be lost for want of a queue.
        target = self._state.existing(destination)
        return self._state.add(destination, queue.owner) if target is None else target
