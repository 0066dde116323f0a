"""Commands on queues: creation, properties, suspension, bindings. Every public method is one command of the state machine."""

from __future__ import annotations

from typing import Any

from ..log import commands as log
from ..messages.totals import property_bytes
from ..owners.quotas import Kind, checked_owner
from ..queue.properties import Rule, checked_properties
from ..state.state import State

__all__ = ["QueueCommands"]


class QueueCommands:
    """The commands."""

    def __init__(self, state: State) -> None:
        self._state = state

    # --- existence and properties ---------------------------------------------------------------------------------

    def create(self, command: log.Create) -> bool:
        """Create a queue unless it exists.

        Raises:
            ValueError: a field is malformed.
            RefusedError: ``quota_exceeded``.
        """
        state = self._state
        if command.queue in state.queues:
            return False
        properties = {key: value for key, value in checked_properties(command.pairs) if value is not None}
        queue = state.create(command.queue, checked_owner(command.owner))
        if properties:
            state.set_own(queue, properties)
            state.refresh(queue)
        if command.indexed:
            state.index_messages(queue)
        return True

    def delete(self, command: log.Delete) -> bool:
        """Delete a queue."""
        return self._state.delete(command.queue)

    def set_properties(self, command: log.SetProperties) -> bool:
        """Set some of a queue's own properties; create the queue if needed.

        Properties that are set on the queue, its parent or by a default rule count as set.

        Raises:
            ValueError: a field is malformed.
            RefusedError: ``quota_exceeded``.
        """
        state, name = self._state, command.queue
        checked = checked_properties(command.pairs)
        if command.only_unset:
            checked = [pair for pair in checked if not state.is_chosen(name, pair[0])]
        self._check_property_bytes(name, dict(checked))
        queue = state.queue(name)
        own = dict(checked) if command.clears else {**queue.own, **dict(checked)}
        state.set_own(queue, {key: value for key, value in own.items() if value is not None})
        state.refresh(queue)
        return True

    def _check_property_bytes(self, name: bytes, properties: dict[str, Any]) -> None:
        state = self._state
        queue = state.existing(name)
        owner, own = (b"", {}) if queue is None else (queue.owner, queue.own)
        more = property_bytes({**own, **properties}) - property_bytes(own)
        if more > 0 and (owner or len(state.tokens)):
            state.quotas.check(Kind.PROPERTY_BYTES, owner, more)

    def set_defaults(self, command: log.SetDefaults) -> bool:
        """Replace the default rules; see `DefaultRules` for when they reach a queue."""
        compiled = self._state.compile
        checked = [(pattern, tuple(checked_properties(pairs))) for pattern, pairs in command.rules]
        if any(value is None for _, properties in checked for _, value in properties):
            raise ValueError("a rule cannot take a property away")
        self._state.defaults.replace([Rule(pattern, properties, compiled(pattern)) for pattern, properties in checked])
        return True

    def suspend(self, command: log.Suspend) -> bool | None:
        """Suspend deliveries of a queue, or resume them.

        Raises:
            ValueError: the flag is no boolean.
        """
        if type(command.suspended) is not bool:
            raise ValueError("whether to suspend must be true or false")
        queue = self._state.existing(command.queue)
        if queue is None:
            return None
        queue.suspended = command.suspended
        if not command.suspended:
            self._state.note_due(queue)
        return True

    def bind(self, command: log.Bind) -> bool:
        """Copy pushes to one queue into another from now on, or no more.

        Raises:
            ValueError: a queue cannot be bound to itself.
            RefusedError: ``quota_exceeded``.
        """
        state, source, target = self._state, command.source, command.target
        if not command.bound:
            return state.unbind(source, target)
        if source == target:
            raise ValueError("a queue cannot be bound to itself")
        state.bindings.check(source, target)
        return state.bind(state.queue(source), state.queue(target))
