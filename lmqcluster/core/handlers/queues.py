"""Commands on one queue: push, pull, settle, properties, deletion. Every public method is one command of the state machine."""

from __future__ import annotations

from typing import Any

from ..log.commands import Delivered, PushFlag
from ..messages.message import Meta
from ..messages.totals import property_bytes
from ..owners.quotas import Kind, checked_owner
from ..queue.properties import Rule, checked_properties
from ..queue.queue import Queue
from ..state.queue_table import are_all, check_numbers
from ..state.state import REMEMBER_US, State

__all__ = ["QueueCommands"]

_SEQUENCES = (list, tuple)
_INT_MAX = (1 << 63) - 1


class QueueCommands:
    """The commands."""

    def __init__(self, state: State) -> None:
        self._state = state

    # --- push and pull --------------------------------------------------------------------------------------------

    def push(
        self,
        name: bytes,
        content_type: bytes | None,
        contents: list[bytes],
        producer: bytes | None,
        first: int,
        owner: bytes = b"",
    ) -> list[int]:
        """Store bodies; return a flag for each.

        Raises:
            ValueError: an argument is malformed.
        """
        if type(contents) not in _SEQUENCES or not are_all(bytes, contents):
            raise ValueError("bodies must be bytes")
        if content_type is not None and type(content_type) is not bytes:
            raise ValueError("a content type must be bytes or None")
        if producer is not None and (type(producer) is not bytes or type(first) is not int or abs(first) > _INT_MAX):
            raise ValueError("a producer must be bytes and its sequence an integer of 63 bits")
        state = self._state
        queue = state.queue(name)
        if producer is None:
            return state.store(queue, (content_type, ()), contents)
        duplicates = state.producers.admit(checked_owner(owner), producer, first, len(contents), state.now_us)
        state.expiry.at(state.now_us + REMEMBER_US)
        if not duplicates and not queue.special:
            return state.store(queue, (content_type, ()), contents)
        return self._push_again(queue, (content_type, ()), contents, (owner, producer, first), duplicates)

    def _push_again(
        self, queue: Queue, meta: Meta, contents: list[bytes], producer: tuple[bytes, bytes, int], duplicates: int
    ) -> list[int]:
        """Store new pushes and those refused before; record those refused now."""
        state, refused = self._state, self._state.producers.refused
        owner, name, first = producer
        flags: list[int] = [0] * duplicates
        again = refused.among(owner, name, first, duplicates) if refused else []
        for sequence in again:
            flags[sequence - first] = state.store(queue, meta, [contents[sequence - first]])[0]
            if flags[sequence - first] < PushFlag.FULL:
                refused.stored(owner, name, sequence)
        fresh = state.store(queue, meta, contents[duplicates:])
        for sequence, flag in enumerate(fresh, first + duplicates):
            if flag >= PushFlag.FULL:
                refused.note(owner, name, sequence)
        return flags + fresh

    def pull(self, name: bytes, count: int) -> list[Delivered] | None:
        """Lease up to `count` messages; None if only exhausted ones were met, as many as one command may drop."""
        if type(count) is not int:
            raise ValueError("a count must be an integer")
        state = self._state
        queue = state.queue(name)
        if queue.special:
            state.check_pull(queue)
        passed_before = queue.passed_over
        return state.pull_from(queue, count) or state.pulled_nothing(queue, passed_before)

    # --- settle ---------------------------------------------------------------------------------------------------

    def ack(self, name: bytes, numbers: list[int]) -> list[bool] | None:
        """Settle deliveries and remove their messages. None if there is no such queue."""
        queue = self._state.existing(name)
        if queue is None:
            return None
        check_numbers(numbers)
        return queue.ack(self._state.now_us, numbers)

    def nack(self, name: bytes, numbers: list[int]) -> list[bool] | None:
        """Give messages back; the deliveries stay charged. None if there is no such queue."""
        return self._state.settle(name, numbers, Queue.nack)

    def extend(self, name: bytes, numbers: list[int]) -> list[bool] | None:
        """Extend leases to a full timeout from now; None if there is no such queue."""
        queue = self._state.existing(name)
        return None if queue is None else self._state.extend(queue, numbers)

    # --- properties and existence ---------------------------------------------------------------------------------

    def set_properties(self, name: bytes, pairs: list[Any], only_unset: bool = False) -> bool:
        """Set some of a queue's own properties; create the queue if needed.

        With `only_unset`, properties set on the queue, its parent or by a default rule are left unchanged.
        """
        state = self._state
        checked = checked_properties(pairs)
        if only_unset:
            checked = [pair for pair in checked if not state.is_chosen(name, pair[0])]
        self._check_property_bytes(name, dict(checked))
        queue = state.queue(name)
        own = {**queue.own, **dict(checked)}
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

    def clear_properties(self, name: bytes) -> bool:
        """Remove all of a queue's own properties; create the queue if needed."""
        queue = self._state.queue(name)
        self._state.set_own(queue, {})
        self._state.refresh(queue)
        return True

    def set_defaults(self, rules: list[Any]) -> bool:
        """Replace the default rules; see `DefaultRules` for when they reach a queue."""
        compiled = self._state.compile
        checked = [(pattern, tuple(checked_properties(pairs))) for pattern, pairs in rules]
        if any(value is None for _, properties in checked for _, value in properties):
            raise ValueError("a rule cannot take a property away")
        self._state.defaults.replace([Rule(pattern, properties, compiled(pattern)) for pattern, properties in checked])
        return True

    def create_for(self, name: bytes, owner: bytes) -> bool:
        """Create a queue for its owner unless it exists; a node sends this before a command that would create it."""
        if name not in self._state.queues:
            self._state.create(name, checked_owner(owner))
        return True

    # --- bindings -------------------------------------------------------------------------------------------------

    def bind(self, source: bytes, target: bytes) -> bool:
        """Copy pushes to one queue into another from now on; create the queues if needed. False if they are bound already.

        Raises:
            ValueError: a queue cannot be bound to itself.
            RefusedError: ``quota_exceeded``.
        """
        if source == target:
            raise ValueError("a queue cannot be bound to itself")
        state = self._state
        state.bindings.check(source, target)
        return state.bind(state.queue(source), state.queue(target))

    def unbind(self, source: bytes, target: bytes) -> bool:
        """Remove a binding; False if there is none."""
        return self._state.unbind(source, target)
