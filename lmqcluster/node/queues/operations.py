"""Operations on whole queues for operators. Long ones repeat their command until they are complete."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any

import structlog

from ...core import Queue, Role
from ...core.handlers.checks import STEP_MAX
from ...core.log.commands import Bind, Move, Purge, Redrive, Suspend
from ...wire.errors import LmqError
from ...wire.limits import NAME_BYTES_MAX
from .sending.command_sender import CommandSender
from .sending.naming import no_queue
from .views.listing import each_queue
from .views.peek import has_attribute

if TYPE_CHECKING:
    from ...core.messages.message import RichMessage
    from ..access.access import Principal

__all__ = ["QueueOperations"]

log = structlog.get_logger("lmq.operations")

_COUNT_MAX = 1 << 62
_SEQUENCE_BYTES = 9
_LABEL_BYTES_MAX = 255
_WHOLE = 0
"""The limit of a purge that removes all messages in line."""
PURGED_TOGETHER = 100
"""Largest number of queues that one log entry purges."""
_Steps = Purge | Move | Redrive
"""The commands that are repeated until nothing is left."""


class QueueOperations:
    """Purge, move, withdraw, redrive, bind, unbind, suspend and resume.

    Each method sends its first command when it is called, so the command keeps its place among the client's requests.
    It raises `LmqError` if the node takes no commands. The returned coroutine has to be awaited and raises `LmqError`
    too: ``queue_not_found``, and ``unknown_outcome`` if the operation failed half-way.
    """

    def __init__(self, sender: CommandSender) -> None:
        self._sender = sender
        self._purging = asyncio.Lock()

    def purge(
        self,
        queue: bytes,
        count: int | None = None,
        *,
        everything: bool = False,
        sequences: list[int] | None = None,
    ) -> Coroutine[Any, Any, int]:
        """Remove up to `count` messages (None: all) that are not leased; return how many were removed.

        With sequences, remove only the dead letters and expired messages with these sequences.

        With `everything`, leased messages are removed too. Without a count, the queue's exact keys are forgotten.

        The purge ends when nothing is left, or when it has removed as many messages as the queue held at its start.
        Messages pushed during the purge stand behind those.
        """
        if sequences is not None:
            return self._single(Purge(queue, sequences=sequences), sequences)
        command = Purge(queue, everything=everything)
        if count is not None:
            return self._repeat(command, _checked_count(count))
        return self._purge_rest(self._send(replace(command, limit=_WHOLE)), command)

    async def _single(self, command: Purge | Redrive, sequences: list[int]) -> int:
        return self._told(command, await self._first(command, len(sequences)))

    async def _purge_rest(self, first: asyncio.Future[int | None], command: _Steps) -> int:
        """Purge delayed messages and messages with traits, in steps."""
        queue = command.queue
        gone = await first
        if gone is None:
            raise no_queue(queue)
        left = self._size(queue) if isinstance(command, Purge) and command.everything else self._out_of_line(queue)
        done, step = gone, STEP_MAX
        while gone >= step and left > 0:
            gone = await self._next(command, step, done)
            done, left = done + gone, left - gone
        return self._told(command, done)

    async def purge_all(self, is_wanted: Callable[[Queue], bool], client: bytes) -> int:
        """Remove the unleased messages of every wanted queue; return how many were removed.

        The work counts for this client, see `FairSlices`.

        Many queues share a log entry. One call runs at a time, so calls that waited usually find nothing left to do.
        """
        sender = self._sender
        async with self._purging:
            done = waiting = 0
            names: list[bytes] = []
            async for queue in each_queue(sender.state, sender.turns, client):
                if is_wanted(queue) and (queue.store.waiting() or queue.name in sender.state().keys.exact):
                    names.append(queue.name)
                    waiting += queue.store.waiting()
                if len(names) == PURGED_TOGETHER or waiting >= STEP_MAX:
                    done += await self._purge_together(names)
                    names, waiting = [], 0
            done += await self._purge_together(names)
        log.info("messages of all queues purged", count=done)
        return done

    async def _purge_together(self, names: list[bytes]) -> int:
        commands = [Purge(name) for name in names]
        gone = await asyncio.gather(*(self._send(replace(command, limit=_WHOLE)) for command in commands))
        done = 0
        for command, count in zip(commands, gone, strict=True):
            # None: the queue has been deleted.
            done += count or 0
            step = count or 0
            while step >= STEP_MAX and self._out_of_line(command.queue):
                step = await self._next(command, STEP_MAX, done)
                done += step
        return done

    def _out_of_line(self, queue: bytes) -> int:
        found = self._sender.state().queues.get(queue)
        return (
            0
            if found is None
            else len(found.store.delayed) + (0 if found.store.rich is None else len(found.store.rich))
        )

    def move(
        self, queue: bytes, destination: bytes, count: int | None = None, owner: bytes = b""
    ) -> Coroutine[Any, Any, int]:
        """Put up to `count` messages (None: all) that can be pulled now at the end of another queue, as new messages.

        Raises:
            LmqError: at once: ``bad_name``; ``bad_request`` if the count is out of range or both queues are the same.
        """
        self._sender.check_name(destination, owner)
        if queue == destination:
            raise LmqError("bad_request", "a queue cannot be moved to itself")
        return self._repeat(Move(queue, destination), _checked_count(count))

    def withdraw(
        self,
        queue: bytes,
        label: bytes,
        count: int | None = None,
        attribute: tuple[str, str] | None = None,
        client: bytes = b"",
    ) -> Coroutine[Any, Any, int]:
        """Remove up to `count` messages (None: all) that have this label and no lease; return how many were removed.

        With an attribute, see `PeekQuery.attribute`, only messages that also have it are removed. The node looks them up
        in its replica, so the first command is sent a little later. The look-up counts for this client, see `FairSlices`.

        Raises:
            LmqError: at once: ``bad_request`` if the label or the count is out of range.
        """
        _check_label(label)
        command = Purge(queue, label=label)
        if attribute is not None:
            return self._withdraw_with(command, attribute, _checked_count(count), client)
        return self._repeat(command, _checked_count(count))

    async def _withdraw_with(self, command: Purge, attribute: tuple[str, str], count: int, client: bytes) -> int:
        """Remove the messages that have an attribute, in steps."""
        await self._sender.look_up()
        if command.queue not in self._sender.state().queues:
            raise no_queue(command.queue)
        done = start = 0
        last = self._sender.state().last_sequence
        while done < count and start <= last:
            block = self._labelled_block(command, start)
            if not block:
                break
            start = block[-1].sequence + 1
            found = [
                one.sequence async for one in self._sender.turns.each(block, client) if has_attribute(one, attribute)
            ]
            if found:
                step = replace(command, sequences=found[: count - done])
                done += await self._next(step, STEP_MAX, done) if done else await self._first(step, STEP_MAX)
        return self._told(command, done)

    def _labelled_block(self, command: Purge, start: int) -> list[RichMessage]:
        """Return the next messages with a label that one step compares."""
        queue = self._sender.state().queues.get(command.queue)
        rich = None if queue is None else queue.store.rich
        return [] if rich is None else list(islice(rich.labelled_from(command.label, start), STEP_MAX))

    def redrive(
        self,
        queue: bytes,
        destination: bytes | None = None,
        *,
        label: bytes = b"",
        count: int | None = None,
        principal: Principal,
        sequences: list[int] | None = None,
    ) -> Coroutine[Any, Any, int]:
        """Send up to `count` dead-letter messages (None: all) back to their queues of origin, or to `destination`.

        If a label or sequences are given, only messages with them are sent. Each is sent as a new message with its
        label, group and priority. The principal needs permission to write to the target queues. If its permissions cover
        only some queues, the node first looks up the targets in its replica, so the first command is sent a little later.

        Raises:
            LmqError: at once: ``bad_name``; ``forbidden``; ``bad_request`` if an argument is out of range or both
                queues are the same.
        """
        if destination is not None:
            principal.require(Role.WRITE, destination)
            self._sender.check_name(destination, principal.owner)
        if queue == destination:
            raise LmqError("bad_request", "messages cannot be sent back to the queue in which they are")
        if label:
            _check_label(label)
        if destination is None and not principal.everywhere:
            return self._redrive_allowed(queue, label, _checked_count(count), principal, sequences)
        if sequences is not None:
            return self._single(Redrive(queue, destination or b"", label, sequences=sequences), sequences)
        return self._repeat(Redrive(queue, destination or b"", label), _checked_count(count))

    async def _redrive_allowed(
        self, queue: bytes, label: bytes, count: int, principal: Principal, sequences: list[int] | None
    ) -> int:
        """Send messages back in steps; check before each step that the principal may write to its target queues.

        Raises:
            LmqError: ``forbidden``; ``unknown_outcome`` if some messages have already been sent.
        """
        await self._sender.look_up()
        done, left = 0, min(count, self._size(queue)) if sequences is None else len(sequences)
        while True:
            step = min(left, STEP_MAX)
            try:
                sources = self._sources(queue, label, step, sequences)
                for source in sources:
                    principal.require(Role.WRITE, source)
            except LmqError as exc:
                if not done:
                    raise
                raise LmqError(
                    "unknown_outcome", f"{done} messages were sent back before this: {exc.message}", retryable=False
                ) from exc
            command = Redrive(queue, sources, label, sequences=sequences)
            gone = await self._next(command, step, done) if done else await self._first(command, step)
            done, left = done + gone, left - gone
            # A message that came from a queue not checked above also ends the step early.
            if sequences is not None or gone < step or left <= 0:
                return self._told(command, done)

    def _sources(self, queue: bytes, label: bytes, most: int, sequences: list[int] | None) -> list[bytes]:
        """Return the origin queues of the messages that the next step would send back."""
        found = self._sender.state().queues.get(queue)
        moved = [] if found is None or found.store.rich is None else found.store.rich.moved(label, most, sequences)
        return sorted({message.traits.origin.queue for message in moved if message.traits.origin is not None})

    async def _first(self, command: _Steps, step: int) -> int:
        gone = await self._send(replace(command, limit=max(1, step)))
        if gone is None:
            raise no_queue(command.queue)
        return int(gone)

    def bind(self, source: bytes, target: bytes, owner: bytes = b"") -> Coroutine[Any, Any, bool]:
        """Copy each later push to `source` into `target` in the same step; False if the binding exists already.

        Creates both queues if necessary.

        Raises:
            LmqError: at once: ``bad_name``, ``quota_exceeded``; ``bad_request`` if both queues are the same.
        """
        for name in (source, target):
            self._sender.check_name(name, owner)
        if source == target:
            raise LmqError("bad_request", "a queue cannot be bound to itself")
        self._sender.check_room()
        return self._changed(self._send(Bind(source, target)), "queue bound", source, target)

    def unbind(self, source: bytes, target: bytes) -> Coroutine[Any, Any, bool]:
        """Remove a binding; False if there is none."""
        if max(len(source), len(target)) > NAME_BYTES_MAX:
            raise LmqError("bad_name", f"a queue name has at most {NAME_BYTES_MAX} bytes")
        return self._changed(self._send(Bind(source, target, bound=False)), "queue unbound", source, target)

    @staticmethod
    async def _changed(changed: asyncio.Future[bool], event: str, source: bytes, target: bytes) -> bool:
        is_changed = await changed
        log.info(event, queue=_shown(source), target=_shown(target))
        return is_changed

    def bindings(self, source: bytes) -> list[bytes]:
        """Return the queues that get copies of pushes to this one."""
        return self._sender.state().bindings.targets(source)

    def count_labelled(self, queue: bytes, label: bytes) -> int:
        """Return how many messages of a queue have this label and no lease, on the local replica.

        Raises ``queue_not_found``.
        """
        found = self._sender.state().queues.get(queue)
        if found is None:
            raise no_queue(queue)
        return 0 if found.store.rich is None else found.store.rich.count_labelled(label)

    def suspend(self, queue: bytes) -> Coroutine[Any, Any, None]:
        """Suspend deliveries of the queue until it is resumed; all other operations continue."""
        return self._finish(queue, self._send(Suspend(queue, True)), "queue suspended")

    def resume(self, queue: bytes) -> Coroutine[Any, Any, None]:
        """Resume deliveries of the queue, first to the pulls that have waited longest."""
        return self._finish(queue, self._send(Suspend(queue, False)), "queue resumed")

    @staticmethod
    async def _finish(queue: bytes, found: asyncio.Future[bool | None], event: str) -> None:
        if await found is None:
            raise no_queue(queue)
        log.info(event, queue=_shown(queue))

    def _repeat(self, command: _Steps, count: int) -> Coroutine[Any, Any, int]:
        first = self._send(replace(command, limit=min(count, STEP_MAX)))
        return self._go_on(first, command, count)

    def _send(self, command: _Steps | Bind | Suspend) -> asyncio.Future[Any]:
        queue = command.source if isinstance(command, Bind) else command.queue
        if len(queue) > NAME_BYTES_MAX:
            raise no_queue(queue)
        sequences = command.sequences if isinstance(command, Purge | Redrive) else None
        return self._sender.send(command, 64 + 2 * NAME_BYTES_MAX + _SEQUENCE_BYTES * len(sequences or ()))

    async def _go_on(self, first: asyncio.Future[int | None], command: _Steps, count: int) -> int:
        queue = command.queue
        step = min(count, STEP_MAX)
        gone = await first
        if gone is None:
            raise no_queue(queue)
        done = gone
        left = min(count - done, self._size(queue))
        while gone == step and left > 0:
            step = min(left, STEP_MAX)
            gone = await self._next(command, step, done)
            done += gone
            left -= gone
        return self._told(command, done)

    @staticmethod
    def _told(command: _Steps, done: int) -> int:
        event = f"messages {_done_by(command)}"
        log.info(event, queue=_shown(command.queue), count=done)
        return done

    async def _next(self, command: _Steps, step: int, done: int) -> int:
        try:
            # A queue deleted since the last step has nothing left.
            return int(await self._send(replace(command, limit=step)) or 0)
        except LmqError as exc:
            # Earlier steps took effect, so the error must not look like a refused request.
            reason = f"{done} messages were {_done_by(command)} before this: {exc.message}"
            raise LmqError("unknown_outcome", reason, retryable=isinstance(command, Purge)) from exc

    def _size(self, queue: bytes) -> int:
        found = self._sender.state().queues.get(queue)
        return 0 if found is None else len(found)


def _checked_count(count: int | None) -> int:
    if count is not None and not 0 < count <= _COUNT_MAX:
        raise LmqError("bad_request", f"a count is 1 or more, not {count}")
    return count or _COUNT_MAX


def _check_label(label: bytes) -> None:
    if not 0 < len(label) <= _LABEL_BYTES_MAX:
        raise LmqError("bad_request", f"a label has 1 to {_LABEL_BYTES_MAX} bytes, not {len(label)}")


def _shown(queue: bytes) -> str:
    return queue[:NAME_BYTES_MAX].decode("utf-8", "backslashreplace")


def _done_by(command: _Steps) -> str:
    if isinstance(command, Purge):
        return "withdrawn" if command.label else "purged"
    return "moved" if isinstance(command, Move) else "sent back"
