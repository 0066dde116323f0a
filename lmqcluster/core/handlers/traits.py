"""Commands on messages with traits. Every public method is one command of the state machine."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat, takewhile
from typing import Any

from ..log.commands import Delivered, Place, PushFlag
from ..log.items import Item, checked_item
from ..messages.message import RichMessage
from ..owners.quotas import checked_owner
from ..queue.options import TIME_US_MAX
from ..queue.queue import Queue
from ..routing.admission import PLAIN_PUSH, Push
from ..state.state import State
from .bulk import check_limit
from .numbered_pushes import checked_numbers, store_once
from .push_plan import PushPlan

__all__ = ["TraitCommands", "checked_push", "checked_time"]

_TEXT_BYTES_MAX = 255


class TraitCommands:
    """The commands."""

    def __init__(self, state: State) -> None:
        self._state = state

    # --- push -----------------------------------------------------------------------------------------------------

    def push(
        self,
        name: bytes,
        rows: list[list[Any] | bytes],
        owner: bytes = b"",
        producer: bytes | None = None,
        first: int = 0,
    ) -> list[tuple[int, int]]:
        """Store messages, all of them or none; return a flag and the sequence of each.

        Messages of a producer have no keys; their numbers show which of them are stored already.

        Raises:
            ValueError: an argument is malformed.
            RefusedError: ``full``, ``too_large``, ``key_reused``, ``quota_exceeded``; nothing is stored. The first
                two are flags if the
                messages have numbers.
        """
        alike = _pushed_alike(rows) if producer is None else None
        if alike is not None:
            return self._push_alike(name, *alike, checked_owner(owner))
        checked = _checked_rows(rows)
        numbers = None if producer is None else checked_numbers(owner, producer, first)
        if numbers is not None and any(item.key is not None for item, _ in checked):
            raise ValueError("messages under numbers have no keys")
        whose, queue = checked_owner(owner), self._state.queue(name)
        if numbers is None:
            return self._store(queue, checked, whose)

        def store(positions: Sequence[int]) -> list[tuple[int, int]]:
            return self._store(queue, [checked[position] for position in positions], whose)

        return store_once(self._state, numbers, len(checked), store)

    def _push_alike(self, name: bytes, bodies: Sequence[bytes], push: Push, owner: bytes) -> list[tuple[int, int]]:
        """Store bodies with equal options and without content type, headers and keys: the usual batch, and fast."""
        queue, admission = self._state.queue(name), self._state.admission
        if not admission.takes_all(queue, bodies):
            return self._store(queue, [(Item(body, None, (), None), push) for body in bodies], owner)
        return _all_stored(admission.store_alike(queue, bodies, push), len(bodies))

    def _store(self, queue: Queue, checked: list[tuple[Item, Push]], owner: bytes) -> list[tuple[int, int]]:
        admission = self._state.admission
        if all(item.key is None for item, _ in checked) and admission.takes_all(
            queue, [item.content for item, _ in checked]
        ):
            return _all_stored(admission.store_all(queue, checked), len(checked))
        plan = PushPlan(self._state, owner)
        for item, _ in checked:
            plan.add(queue, item)
        return [plan.store(queue, item, push) for item, push in checked]

    # --- pull and settle ------------------------------------------------------------------------------------------

    def pull(self, name: bytes, count: int, lease_us: int, settles: bool) -> list[Delivered] | None:
        """Lease up to `count` messages for a time, or settle them at once; None if the pull must be repeated.

        Raises:
            ValueError: an argument is out of range.
            RefusedError: ``exclusive``.
        """
        if type(count) is not int or type(settles) is not bool:
            raise ValueError("a count must be an integer, and whether to settle true or false")
        state = self._state
        queue = state.queue(name)
        state.check_pull(queue)
        passed_before = queue.passed_over
        deadline_us = state.now_us + (checked_time(lease_us) or queue.settings.timeout_us)
        if settles:
            delivered = queue.pull_settled(state.now_us, count, state.last_delivery)
            state.last_delivery += len(delivered)
        elif deadline_us <= state.now_us:
            delivered = state.pull_from(queue, count)
        else:
            delivered = state.take(queue, count, deadline_us, 1)
        return delivered or state.pulled_nothing(queue, passed_before)

    def give_back(self, name: bytes, numbers: list[int], place: int, delay_us: int) -> list[bool] | None:
        """Give messages back to a place in line; None if there is no such queue.

        Raises:
            ValueError: an argument is out of range.
        """
        where, later_us = Place(place), None if delay_us == -1 else checked_time(delay_us)

        def verb(queue: Queue, now_us: int, given: list[int]) -> list[bool]:
            return queue.give_back(now_us, given, where, later_us)

        return self._state.settle(name, numbers, verb)

    def extend(self, name: bytes, numbers: list[int], lease_us: int) -> list[bool] | None:
        """Extend leases to `lease_us` from now; None if there is no such queue.

        Raises:
            ValueError: an argument is out of range.
        """
        if not checked_time(lease_us):
            raise ValueError("a lease must be longer than 0")
        queue = self._state.existing(name)
        return None if queue is None else self._state.extend(queue, numbers, lease_us)

    # --- messages in line
    # ---------------------------------------------------------------------------------------------

    def withdraw(self, name: bytes, label: bytes, limit: int) -> int | None:
        """Remove up to `limit` messages with a label that are not in flight; None if there is no such queue.

        Raises:
            ValueError: the limit is out of range.
        """
        check_limit(limit)
        queue = self._state.existing(name)
        if queue is None:
            return None
        found = [] if queue.rich is None else queue.rich.labelled(_checked_text(label), limit)
        queue.remove(found, self._state.now_us)
        queue.withdrawn_total += len(found)
        return len(found)

    def redrive(self, name: bytes, destination: bytes | list[bytes], label: bytes, limit: int) -> int | None:
        """Send up to `limit` messages that the cluster has moved here back, or elsewhere; None if there is no such queue.

        Each becomes a fresh message with its label, group and priority. Limits of the target do not apply. If
        `destination` is a list, messages return until the first that came from none of these queues.

        Raises:
            ValueError: an argument is out of range, or the destination is the queue itself.
        """
        check_limit(limit)
        sources = {_checked_text(one) for one in destination} if isinstance(destination, list) else None
        target = destination if isinstance(destination, bytes) else b""
        if target == name:
            raise ValueError("messages cannot be sent back to the queue in which they are")
        state = self._state
        queue = state.existing(name)
        if queue is None:
            return None
        found = [] if queue.rich is None else queue.rich.moved(_checked_text(label), limit)
        if sources is not None:
            found = list(takewhile(lambda message: _source(message) in sources, found))
        if target:
            state.queue(target)
        queue.remove(found, state.now_us)
        queue.moved_out_total += len(found)
        for message in found:
            state.exits.send(queue, message, target or _source(message))
        return len(found)


def _source(message: RichMessage) -> bytes:
    """Return the queue from which the cluster has moved a message."""
    assert message.traits.origin is not None  # noqa: S101 - for the type checker
    return message.traits.origin.queue


def _all_stored(first: int, count: int) -> list[tuple[int, int]]:
    return list(zip(repeat(PushFlag.STORED), range(first, first + count), strict=False))


def _pushed_alike(rows: list[list[Any] | bytes]) -> tuple[list[bytes], Push] | None:
    """Return the bodies and their options, if all but the first are bare and that has no content type, headers or key.

    Raises:
        ValueError: the first is malformed.
    """
    push, given = PLAIN_PUSH, rows
    if rows and not isinstance(rows[0], bytes):
        push, item = checked_push(rows[0][4]), checked_item(rows[0][:4])
        if item.content_type is not None or item.headers or item.key is not None:
            return None
        given = [item.content, *rows[1:]]
    bodies = [row for row in given if isinstance(row, bytes)]
    return (bodies, push) if len(bodies) == len(given) else None


def _checked_rows(rows: list[list[Any] | bytes]) -> list[tuple[Item, Push]]:
    push = PLAIN_PUSH
    checked: list[tuple[Item, Push]] = []
    for row in rows:
        if isinstance(row, bytes):
            checked.append((Item(row, None, (), None), push))
        else:
            push = checked_push(row[4])
            checked.append((checked_item(row[:4]), push))
    return checked


def checked_push(row: list[Any]) -> Push:
    """Return the options of a message in a command.

    Raises:
        ValueError: they are malformed.
    """
    if not row:
        return PLAIN_PUSH
    delay_us, due_us, ttl_us, priority, label, group = row
    if type(delay_us) is not int or not -1 <= delay_us <= TIME_US_MAX:
        raise ValueError("a delay must be an integer, -1 or more")
    if type(priority) is not int or not -(1 << 31) <= priority < 1 << 31:
        raise ValueError("a priority must be an integer of 32 bits")
    return Push(
        delay_us, checked_time(due_us), checked_time(ttl_us), priority, _checked_text(label), _checked_text(group)
    )


def checked_time(time_us: Any) -> int:
    """Return a time of a command.

    Raises:
        ValueError: it is no integer, negative, or out of range.
    """
    if type(time_us) is not int or not 0 <= time_us <= TIME_US_MAX:
        raise ValueError("a time must be an integer, 0 or more")
    return time_us


def _checked_text(text: Any) -> bytes:
    if type(text) is not bytes or len(text) > _TEXT_BYTES_MAX:
        raise ValueError(f"a label, a group or the name of a queue must have at most {_TEXT_BYTES_MAX} bytes")
    return text
