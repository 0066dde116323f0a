"""Commands on queues: creation, properties, suspension, bindings. Every public method is one command of the state machine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..log import commands as log
from ..log.results import RefusedError, shown
from ..messages.totals import property_bytes
from ..owners.quotas import Kind, checked_owner
from ..queue.annotations import FIFO, KIND, NO_ANNOTATIONS, Annotations, annotated, checked_annotations
from ..queue.properties import Rule, checked_properties
from ..state.state import State

__all__ = ["QueueCommands"]

_NOTHING: tuple[bytes, dict[str, Any], Annotations] = (b"", {}, NO_ANNOTATIONS)
"""Owner, properties and annotations of a queue that does not exist."""


class QueueCommands:
    """The commands."""

    def __init__(self, state: State) -> None:
        self._state = state

    # --- existence and properties ---------------------------------------------------------------------------------

    def create(self, command: log.Create) -> bool:
        """Create a queue unless it exists.

        Raises:
            ValueError: a field is malformed.
            RefusedError: ``quota_exceeded``, ``too_large`` for the annotations, ``bad_property`` for a queue for dead
                letters of another kind.
        """
        state, owner = self._state, checked_owner(command.owner)
        if command.queue in state.queues:
            return False
        properties = {key: value for key, value in checked_properties(command.pairs) if value is not None}
        annotations = annotated({}, checked_annotations(command.annotations))
        self._check_dead_letters(command.queue, properties, annotations)
        self._check_property_bytes(owner, property_bytes(properties) + property_bytes(annotations))
        queue = state.create(command.queue, owner)
        if properties:
            state.set_own(queue, properties)
            state.refresh(queue)
        state.annotate(queue, annotations)
        if command.indexed:
            state.index_messages(queue)
        return True

    def delete(self, command: log.Delete) -> bool:
        """Delete a queue."""
        return self._state.delete(command.queue)

    def set_properties(self, command: log.SetProperties) -> bool:
        """Set some of a queue's own properties and annotations; create the queue if needed.

        Properties that are set on the queue, its parent or by a default rule count as set.

        Raises:
            ValueError: a field is malformed.
            RefusedError: ``quota_exceeded``, ``too_large`` for the annotations, ``queue_not_found`` for a queue that must
                exist, ``bad_property`` for a queue for dead letters of another kind.
        """
        state, name = self._state, command.queue
        checked, changes = checked_properties(command.pairs), checked_annotations(command.annotations)
        found = state.existing(name)
        if found is None and command.must_exist:
            raise RefusedError("queue_not_found", f"there is no queue {shown(name)}")
        owner, own, before = _NOTHING if found is None else (found.owner, found.own, found.annotations)
        if command.only_unset:
            checked = [pair for pair in checked if not state.is_chosen(name, pair[0])]
            changes = {key: value for key, value in changes.items() if key not in before}
        annotations = annotated(before, changes) if changes else before
        self._check_dead_letters(name, dict(checked), annotations)
        more = property_bytes({**own, **dict(checked)}) - property_bytes(own)
        if changes:
            more += property_bytes(annotations) - property_bytes(before)
        self._check_property_bytes(owner, more)
        queue = state.queue(name)
        own = dict(checked) if command.clears else {**own, **dict(checked)}
        state.set_own(queue, {key: value for key, value in own.items() if value is not None})
        state.refresh(queue)
        if changes:
            state.annotate(queue, annotations)
        queue.changed_us = state.now_us
        return True

    def _check_dead_letters(self, name: bytes, properties: Mapping[str, Any], annotations: Annotations) -> None:
        """Refuse a queue for dead letters that exists and is of another kind."""
        target = self._state.existing((properties.get("dead_letter_queue") or "").encode())
        is_fifo = annotations.get(KIND) == FIFO
        if target is not None and target.is_fifo() is not is_fifo:
            kinds = ("is a FIFO queue", "is none") if is_fifo else ("is no FIFO queue", "is one")
            raise RefusedError(
                "bad_property",
                f"the queue {shown(name)} {kinds[0]} and its dead_letter_queue {shown(target.name)} {kinds[1]}; nothing is "
                "changed; name a queue of the same kind",
            )

    def _check_property_bytes(self, owner: bytes, more: int) -> None:
        if more > 0 and (owner or len(self._state.tokens)):
            self._state.quotas.check(Kind.PROPERTY_BYTES, owner, more)

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
