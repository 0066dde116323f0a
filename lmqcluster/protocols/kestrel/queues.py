"""Queues as Kestrel's clients know them, for one client: the translation to the node's service."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from ...core import Queue, Role
from ...core.log.commands import Delivered
from ...core.messages.message import Message, loaded
from ...node.access.access import Principal
from ...node.node import Node
from ...node.queues.open_reads.open_reads import HasRoom
from ...node.queues.sending.push_items import PushItem, PushOptions
from ...wire.errors import LmqError, forget_frames
from ...wire.legacy_msgpack import plain_body
from .names import check_name, parent_of
from .status import ServerStatus

__all__ = ["FOREVER_MS", "KestrelQueues", "body_of"]

FOREVER_MS = (1 << 31) - 1
"""Kestrel's clients send this to wait for ever."""
_SOON_S = 1e-6


def body_of(message: Message) -> bytes:
    """The bytes of an item; those of a message that was accumulated stand one behind the other."""
    content = loaded(message.content)
    if isinstance(content, bytes):
        return plain_body(message.meta[0], content)
    return b"".join(plain_body(part.content_type, part.content) for part in content)


class KestrelQueues:
    """What one client may do, checked, under Kestrel's rules for names, children and aliases.

    Args:
        node: whose queues these are.
        status: what clients may do there.
        principal: who the client is.
    """

    def __init__(self, node: Node, status: ServerStatus, principal: Principal) -> None:
        self._node = node
        self._service = node.service
        self._status = status
        self.principal = principal

    # --- put ------------------------------------------------------------------------------------------------------

    async def prepare_put(self, queue: bytes) -> None:
        """Make sure that the client may put into the queue, and that a child is bound to its parent.

        Raises:
            LmqError: it may not; ``suspended`` while the server takes no puts.
        """
        self._check(queue, "set", writes=True)
        await self._bind(queue)

    def is_prepared(self, queue: bytes) -> bool:
        """Whether `prepare_put` would do nothing."""
        return (
            queue in self._service.machine().queues
            and b"+" not in queue
            and b"." not in queue
            and b"~" not in queue
            and self._status.takes_writes
            and self.principal.allows(Role.WRITE, queue)
        )

    def put_soon(self, queue: bytes, contents: list[bytes]) -> asyncio.Future[list[int]]:
        """Send puts of items that do not expire; see `QueueService.push_run`."""
        return self._service.push_run(queue, contents, self.principal.owner)

    async def put(self, queue: bytes, contents: list[bytes], ttl_s: float | None = None) -> list[bool]:
        """Store items; tells of each whether it is stored. With a `ttl_s` of 0 they expire at once.

        Raises:
            LmqError: some may be stored; ``forbidden``, ``bad_name`` and ``suspended`` say that none is.
        """
        await self.prepare_put(queue)
        items = self._items(contents, ttl_s)
        pushes = [asyncio.ensure_future(self._service.push(queue, [item], self.principal.owner)) for item in items]
        await asyncio.gather(*pushes, return_exceptions=True)
        stored = [_is_stored(push) for push in pushes]
        self.count_puts(queue, [len(one) for one, is_stored in zip(contents, stored, strict=True) if is_stored])
        return stored

    async def put_until_refused(self, queue: bytes, contents: list[bytes], ttl_s: float | None = None) -> int:
        """As `put`, but nothing is stored behind an item that is refused; returns how many are stored."""
        await self.prepare_put(queue)
        items = self._items(contents, ttl_s)
        if not items:
            return 0
        with contextlib.suppress(_RefusedError):
            await self._push(queue, items)
            self.count_puts(queue, list(map(len, contents)))
            return len(items)
        # Not all of them fit: none is stored yet.
        for stored, item in enumerate(items):
            try:
                await self._push(queue, [item])
            except _RefusedError:
                return stored
            self.count_puts(queue, [len(contents[stored])])
        return len(items)

    async def _push(self, queue: bytes, items: list[PushItem]) -> None:
        try:
            await self._service.push(queue, items, self.principal.owner)
        except LmqError as exc:
            if _is_refusal(exc):
                raise _RefusedError from exc
            raise

    @staticmethod
    def _items(contents: list[bytes], ttl_s: float | None) -> list[PushItem]:
        options = None if ttl_s is None else PushOptions(ttl_s=max(_SOON_S, ttl_s))
        return [PushItem(content, options=options) for content in contents]

    def count_puts(self, queue: bytes, sizes: list[int]) -> None:
        """Items of these sizes were stored."""
        found = self._service.machine().queues.get(queue)
        if found is not None and sizes:
            counts = self._node.observed.kestrel.of(found)
            counts.put_items += len(sizes)
            counts.put_bytes += sum(sizes)

    # --- get ------------------------------------------------------------------------------------------------------

    def check_get(self, queue: bytes) -> None:
        """Refuse what `open` would refuse.

        Raises:
            LmqError: ``bad_name``, ``forbidden``; ``suspended`` while the server hands out nothing.
        """
        self._check(queue, "get")

    async def open(
        self, queue: bytes, *, count: int = 1, wait_ms: int = 0, has_room: HasRoom | None = None
    ) -> list[Delivered]:
        """Open up to `count` items; none after `wait_ms`, when the queue is deleted, or if the name is an alias.

        Raises: as `check_get` and `OpenReads.open`.
        """
        self.check_get(queue)
        if self.is_alias(queue):
            return []
        await self._bind(queue)
        self._service.check_name(queue, self.principal.owner)
        reads = self._node.open_reads
        if wait_ms <= 0:
            return await reads.take(queue, count=count, has_room=has_room)
        wait_s = None if wait_ms == FOREVER_MS else wait_ms / 1000
        ended = self._service.events.end(queue)
        try:
            return await reads.take(queue, count=count, wait_s=wait_s, has_room=has_room, until=ended)
        except asyncio.CancelledError:
            self._node.observed.kestrel.waiters_aborted += 1
            raise
        finally:
            ended.cancel()

    async def take(self, queue: bytes) -> list[Delivered]:
        """Remove the next item, which is gone then; nothing if there is none now, or if the name is an alias.

        Raises: as `check_get` and `OpenReads.take_settled`.
        """
        self.check_get(queue)
        if self.is_alias(queue):
            return []
        await self._bind(queue)
        self._service.check_name(queue, self.principal.owner)
        return await self._node.open_reads.take_settled(queue)

    def shown(self, queue: bytes) -> tuple[int, int]:
        """How many items this node sees waiting in a queue, and about how many bytes each of them has.

        Others may take them first, and there may be more.
        """
        found = self._service.machine().queues.get(queue)
        return (0, 0) if found is None else (found.waiting(), found.body_bytes // max(1, len(found)))

    def opened(self, queue: bytes, count: int = 1) -> None:
        """So many items went to the client as open reads."""
        found = self._service.machine().queues.get(queue)
        if found is not None and count:
            self._node.observed.kestrel.of(found).transactions += count

    def missed(self, queue: bytes, count: int = 1) -> None:
        """So many fetches have brought nothing."""
        counts, found = self._node.observed.kestrel, self._service.machine().queues.get(queue)
        counts.get_misses += count
        if found is not None:
            counts.of(found).get_items_miss += count

    async def peek(self, queue: bytes, wait_ms: int = 0) -> bytes | None:
        """A copy of the next item, waiting up to `wait_ms` for one.

        Raises:
            LmqError: it cannot be known.
        """
        self._check(queue, "peek", role=Role.READ)
        if self.is_alias(queue):
            return None
        await self._bind(queue)
        if wait_ms <= 0:
            return await self._head(queue)
        loop = asyncio.get_running_loop()
        ends_s = loop.time() + wait_ms / 1000
        while True:
            gained, ended = self._service.events.arrival(queue), self._service.events.end(queue)
            try:
                content = await self._head(queue)
                left_s = ends_s - loop.time()
                if content is not None or left_s <= 0:
                    return content
                done, _ = await asyncio.wait(
                    (gained, ended),
                    timeout=None if wait_ms == FOREVER_MS else left_s,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                if ended in done or not done:
                    return None
            finally:
                gained.cancel()
                ended.cancel()

    async def _head(self, queue: bytes) -> bytes | None:
        """Return a copy of the next item, None if there is none."""
        while True:
            # Afterwards this replica shows everything that was acknowledged before.
            await self._service.barrier()
            machine = self._service.machine()
            found = machine.queues.get(queue)
            head = None if found is None or found.suspended else found.first_in_line(machine.now_us)
            if found is None or head is None:
                return None
            if not found.is_expired(head, machine.now_us):
                return body_of((await self._service.pulls.absent.brought([head]))[0])

    # --- the rest -------------------------------------------------------------------------------------------------

    async def flush(self, queue: bytes) -> None:
        """Remove all waiting items; an unknown queue and an alias have none.

        Raises:
            LmqError: ``forbidden``; ``suspended`` while the server takes no puts; it cannot be done now.
        """
        self._status.check_write("flush")
        self.principal.require(Role.ADMIN, queue)
        await self._flush(queue)

    async def _flush(self, queue: bytes) -> None:
        if self.is_alias(queue) or not queue:
            return
        try:
            await self._service.operations.purge(queue)
        except LmqError as exc:
            if exc.code != "queue_not_found":
                raise
        found = self._service.machine().queues.get(queue)
        if found is not None:
            self._node.observed.kestrel.of(found).total_flushes += 1

    async def flush_all(self, client: bytes) -> None:
        """`flush` of every queue, as work of this client. Raises as `flush`."""
        self._status.check_write("flush_all")
        self.principal.require_all(Role.ADMIN)
        await self._service.barrier()
        counts = self._node.observed.kestrel

        def is_flushed(queue: Queue) -> bool:
            if self.is_alias(queue.name):
                return False
            counts.of(queue).total_flushes += 1
            return True

        await self._service.operations.purge_all(is_flushed, client)

    async def flush_expired(self, queue: bytes | None = None) -> int:
        """How many expired items are there to be removed: none, because the cluster removes them when their time is over.

        Raises:
            LmqError: ``forbidden``, or ``suspended`` while the server takes no puts; it cannot be known.
        """
        if queue is not None:
            self._status.check_write("flush_expired")
        self.principal.require_role(Role.WRITE)
        await self._service.barrier()
        return 0

    async def delete(self, queue: bytes) -> None:
        """Drop the queue with its items and open reads; an unknown one and an alias stay as they are. Raises as `flush`."""
        self._status.check_write("delete")
        self.principal.require(Role.ADMIN, queue)
        if queue and not self.is_alias(queue):
            await self._service.delete(queue)

    def is_alias(self, queue: bytes) -> bool:
        """Whether the name stands for other queues."""
        found = self._service.machine().queues.get(queue)
        options = None if found is None else found.settings.options
        return options is not None and bool(options.destinations)

    def _check(self, queue: bytes, operation: str, *, role: Role = Role.WRITE, writes: bool = False) -> None:
        check_name(queue)
        if writes:
            self._status.check_write(operation)
        else:
            self._status.check_read(operation)
        self.principal.require(role, queue)

    async def _bind(self, queue: bytes) -> None:
        """Have a child get copies of what is put into its parent from now on."""
        parent = parent_of(queue)
        if parent is None or parent in self._service.machine().bindings.sources(queue):
            return
        self.principal.require(Role.WRITE, parent)
        await self._service.operations.bind(parent, queue, self.principal.owner)


class _RefusedError(Exception):
    """The queue does not take an item; nothing is stored."""


def _is_stored(push: asyncio.Future[Any]) -> bool:
    """Whether a push that is over has stored its item; what is no refusal of the queue is raised."""
    try:
        push.result()
    except LmqError as exc:
        if not _is_refusal(exc):
            raise
        forget_frames(exc)
        return False
    return True


def _is_refusal(error: BaseException) -> bool:
    return isinstance(error, LmqError) and error.code in ("full", "too_large")
