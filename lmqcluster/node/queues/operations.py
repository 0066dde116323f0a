"""What operators do to whole queues; long commands are repeated until they are complete."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

import structlog

from ...core import Op, Queue, Role
from ...core.handlers.bulk import STEP_MAX
from ...core.log import command_layout as layout
from ...core.log.commands import Command
from ...wire.errors import LmqError
from ...wire.limits import NAME_BYTES_MAX
from .sending.command_sender import CommandSender
from .sending.naming import no_queue
from .views.listing import each_queue

if TYPE_CHECKING:
    from ..access.access import Principal

__all__ = ["QueueOperations"]

log = structlog.get_logger("lmq.operations")

_COUNT_MAX = 1 << 62
_LABEL_BYTES_MAX = 255
_WHOLE = 0
"""The limit of a purge for all that is in line."""
PURGED_TOGETHER = 100
"""Most queues that one entry of the log purges."""
_DONE = {Op.PURGE: "purged", Op.MOVE: "moved", Op.WITHDRAW: "withdrawn", Op.REDRIVE: "sent back"}


class QueueOperations:
    """Purge, move, withdraw, redrive, bind, unbind, suspend and resume.

    They send their first command when they are called, so that it keeps its place among the requests of a client, and raise
    `LmqError` if the node takes none. What they return has to be awaited and raises it too: ``queue_not_found``, and
    ``unknown_outcome`` if it failed half-way.
    """

    def __init__(self, proposals: CommandSender) -> None:
        self._proposals = proposals
        self._purging = asyncio.Lock()

    def purge(self, queue: bytes, count: int | None = None) -> Coroutine[Any, Any, int]:
        """Remove up to `count` messages (None: all) that are not leased; returns how many there were.

        It ends when nothing is left, or when as many are gone as the queue held when it began: what is pushed meanwhile
        stands behind those.
        """
        command = layout.purge(queue)
        if count is not None:
            return self._repeat(command, _checked_count(count))
        return self._purge_rest(self._send(layout.with_limit(command, _WHOLE)), command)

    async def _purge_rest(self, first: asyncio.Future[int | None], command: Command) -> int:
        """What waits in no plain line goes step by step."""
        queue: bytes = command[layout.QUEUE]
        gone = await first
        if gone is None:
            raise no_queue(queue)
        done, left, step = gone, self._out_of_line(queue), STEP_MAX
        while gone >= step and left > 0:
            gone = await self._next(command, step, done)
            done, left = done + gone, left - gone
        return self._told(command, done)

    async def purge_all(self, is_wanted: Callable[[Queue], bool], client: bytes) -> int:
        """Remove what is not leased from every queue that is wanted, as work of this client; returns how many messages.

        Many queues share an entry of the log, and one call runs at a time: those that wait find nothing left to do.
        """
        proposals = self._proposals
        async with self._purging:
            done = waiting = 0
            names: list[bytes] = []
            async for queue in each_queue(proposals.machine, proposals.turns, client):
                if is_wanted(queue) and queue.waiting():
                    names.append(queue.name)
                    waiting += queue.waiting()
                if len(names) == PURGED_TOGETHER or waiting >= STEP_MAX:
                    done += await self._purge_together(names)
                    names, waiting = [], 0
            done += await self._purge_together(names)
        log.info("messages of all queues purged", count=done)
        return done

    async def _purge_together(self, names: list[bytes]) -> int:
        commands = [layout.purge(name) for name in names]
        gone = await asyncio.gather(*(self._send(layout.with_limit(command, _WHOLE)) for command in commands))
        done = 0
        for command, count in zip(commands, gone, strict=True):
            # None is that of a queue that was deleted meanwhile.
            done += count or 0
            step = count or 0
            while step >= STEP_MAX and self._out_of_line(command[layout.QUEUE]):
                step = await self._next(command, STEP_MAX, done)
                done += step
        return done

    def _out_of_line(self, queue: bytes) -> int:
        found = self._proposals.machine().queues.get(queue)
        return 0 if found is None else len(found.delayed) + (0 if found.rich is None else len(found.rich))

    def move(
        self, queue: bytes, destination: bytes, count: int | None = None, owner: bytes = b""
    ) -> Coroutine[Any, Any, int]:
        """Put up to `count` messages (None: all) that can be pulled now at the end of another queue, as fresh messages.

        Raises:
            LmqError: at once: ``bad_name``, or ``bad_request`` if the count is out of range or both queues are one.
        """
        self._proposals.check_name(destination, owner)
        if queue == destination:
            raise LmqError("bad_request", "a queue cannot be moved to itself")
        return self._repeat(layout.move(queue, destination), _checked_count(count))

    def withdraw(self, queue: bytes, label: bytes, count: int | None = None) -> Coroutine[Any, Any, int]:
        """Remove up to `count` messages (None: all) with a label that nobody holds; returns how many there were.

        Raises:
            LmqError: at once: ``bad_request`` if the label or the count is out of range.
        """
        _check_label(label)
        return self._repeat(layout.withdraw(queue, label), _checked_count(count))

    def redrive(
        self,
        queue: bytes,
        destination: bytes | None = None,
        *,
        label: bytes = b"",
        count: int | None = None,
        principal: Principal,
    ) -> Coroutine[Any, Any, int]:
        """Send up to `count` messages (None: all) that the cluster has put here back to where they came from, or elsewhere.

        Only those with the label are sent, if one is given. Each goes as a fresh message, with its label, group and priority. The
        principal has to be allowed to write where they go; one that covers only some queues sees what is known here first, so
        its first command is sent a little later.

        Raises:
            LmqError: at once: ``bad_name``, ``forbidden``, or ``bad_request`` if an argument is out of range or both queues are
                one.
        """
        if destination is not None:
            principal.require(Role.WRITE, destination)
            self._proposals.check_name(destination, principal.owner)
        if queue == destination:
            raise LmqError("bad_request", "messages cannot be sent back to the queue in which they are")
        if label:
            _check_label(label)
        if destination is None and not principal.everywhere:
            return self._redrive_allowed(queue, label, _checked_count(count), principal)
        return self._repeat(layout.redrive(queue, destination or b"", label), _checked_count(count))

    async def _redrive_allowed(self, queue: bytes, label: bytes, count: int, principal: Principal) -> int:
        """Send messages back, each step after a look at where they would go.

        Raises:
            LmqError: ``forbidden``; ``unknown_outcome`` if some were sent before.
        """
        await self._proposals.look_up()
        done, left = 0, min(count, self._size(queue))
        while True:
            step = min(left, STEP_MAX)
            try:
                sources = self._sources(queue, label, step)
                for source in sources:
                    principal.require(Role.WRITE, source)
            except LmqError as exc:
                if not done:
                    raise
                raise LmqError(
                    "unknown_outcome", f"{done} messages were sent back before this: {exc.message}", retryable=False
                ) from exc
            command = layout.redrive(queue, sources, label)
            gone = await self._next(command, step, done) if done else await self._first(command, step)
            done, left = done + gone, left - gone
            # One that came from elsewhere meanwhile stops it too.
            if gone < step or left <= 0:
                return self._told(command, done)

    def _sources(self, queue: bytes, label: bytes, most: int) -> list[bytes]:
        """Return from which queues the messages came that would be sent back next."""
        found = self._proposals.machine().queues.get(queue)
        moved = [] if found is None or found.rich is None else found.rich.moved(label, most)
        return sorted({message.traits.origin.queue for message in moved if message.traits.origin is not None})

    async def _first(self, command: Command, step: int) -> int:
        gone = await self._send(layout.with_limit(command, max(1, step)))
        if gone is None:
            raise no_queue(command[layout.QUEUE])
        return int(gone)

    def bind(self, source: bytes, target: bytes, owner: bytes = b"") -> Coroutine[Any, Any, bool]:
        """Have a copy of what is pushed to one queue stored in another in the same step; False if it was so before.

        Makes both queues if need be.

        Raises:
            LmqError: at once: ``bad_name``, ``quota_exceeded``, or ``bad_request`` if both queues are one.
        """
        for name in (source, target):
            self._proposals.check_name(name, owner)
        if source == target:
            raise LmqError("bad_request", "a queue cannot be bound to itself")
        self._proposals.check_room()
        return self._changed(self._send(layout.bind(source, target)), "queue bound", source, target)

    def unbind(self, source: bytes, target: bytes) -> Coroutine[Any, Any, bool]:
        """End a binding; False if there is none."""
        if max(len(source), len(target)) > NAME_BYTES_MAX:
            raise LmqError("bad_name", f"a queue name has at most {NAME_BYTES_MAX} bytes")
        return self._changed(self._send(layout.unbind(source, target)), "queue unbound", source, target)

    @staticmethod
    async def _changed(changed: asyncio.Future[bool], event: str, source: bytes, target: bytes) -> bool:
        is_changed = await changed
        log.info(event, queue=_shown(source), target=_shown(target))
        return is_changed

    def bindings(self, source: bytes) -> list[bytes]:
        """The queues that get copies of what is pushed to this one."""
        return self._proposals.machine().bindings.targets(source)

    def count_labelled(self, queue: bytes, label: bytes) -> int:
        """How many messages of a queue have a label and are held by nobody, on the local replica. Raises ``queue_not_found``."""
        found = self._proposals.machine().queues.get(queue)
        if found is None:
            raise no_queue(queue)
        return 0 if found.rich is None else found.rich.count_labelled(label)

    def suspend(self, queue: bytes) -> Coroutine[Any, Any, None]:
        """Have the queue hand out nothing until it is resumed; everything else goes on."""
        return self._finish(queue, self._send(layout.suspend(queue, True)), "queue suspended")

    def resume(self, queue: bytes) -> Coroutine[Any, Any, None]:
        """Have the queue hand out messages again, to those first who have waited."""
        return self._finish(queue, self._send(layout.suspend(queue, False)), "queue resumed")

    @staticmethod
    async def _finish(queue: bytes, found: asyncio.Future[bool | None], event: str) -> None:
        if await found is None:
            raise no_queue(queue)
        log.info(event, queue=_shown(queue))

    def _repeat(self, command: Command, count: int) -> Coroutine[Any, Any, int]:
        first = self._send(layout.with_limit(command, min(count, STEP_MAX)))
        return self._go_on(first, command, count)

    def _send(self, command: Command) -> asyncio.Future[Any]:
        if len(command[layout.QUEUE]) > NAME_BYTES_MAX:
            raise no_queue(command[layout.QUEUE])
        return self._proposals.send(command, 64 + 2 * NAME_BYTES_MAX)

    async def _go_on(self, first: asyncio.Future[int | None], command: Command, count: int) -> int:
        queue: bytes = command[layout.QUEUE]
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
    def _told(command: Command, done: int) -> int:
        event = f"messages {_DONE[command[layout.OP]]}"
        log.info(event, queue=_shown(command[layout.QUEUE]), count=done)
        return done

    async def _next(self, command: Command, step: int, done: int) -> int:
        try:
            # A queue that is deleted meanwhile has nothing left.
            return int(await self._send(layout.with_limit(command, step)) or 0)
        except LmqError as exc:
            # A part of it has been done, so this is not what a refused request looks like.
            reason = f"{done} messages were {_DONE[command[layout.OP]]} before this: {exc.message}"
            raise LmqError("unknown_outcome", reason, retryable=command[layout.OP] in (Op.PURGE, Op.WITHDRAW)) from exc

    def _size(self, queue: bytes) -> int:
        found = self._proposals.machine().queues.get(queue)
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
