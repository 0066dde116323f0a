"""Queues as one Kestrel client sees them: translates its operations to the node's service."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from ...core import Queue, Role
from ...core.log.results import Delivered
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
"""Wait time that Kestrel's clients send to wait forever."""
_SOON_S = 1e-6


def body_of(message: Message) -> bytes:
    """Return the bytes of an item; the parts of an accumulated message are concatenated."""
    content = loaded(message.content)
    if isinstance(content, bytes):
        return plain_body(message.meta[0], content)
    return b"".join(plain_body(part.content_type, part.content) for part in content)


class KestrelQueues:
    """Queue operations of one client, with permission checks and Kestrel's rules for names, children and aliases.

    Args:
        node: the node that has the queues.
        status: the operations that clients of the node may use.
        principal: the client's principal.
    """

    def __init__(self, node: Node, status: ServerStatus, principal: Principal) -> None:
        self._node = node
        self._service = node.service
        self._status = status
        self.principal = principal

    # --- put ------------------------------------------------------------------------------------------------------

    async def prepare_put(self, queue: bytes) -> None:
        """Check that the client may put into the queue, and bind a child queue to its parent.

        Raises:
            LmqError: the client may not; ``suspended`` while the server takes no puts.
        """
        self._check(queue, "set", writes=True)
        await self._bind(queue)

    def is_prepared(self, queue: bytes) -> bool:
        """Return whether `prepare_put` would be a no-op."""
        return (
            queue in self._service.sender.state().queues
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
        """Store items; return for each whether it is stored. With a `ttl_s` of 0 they expire immediately.

        Raises:
            LmqError: some items may be stored; with ``forbidden``, ``bad_name`` and ``suspended`` none is.
        """
        await self.prepare_put(queue)
        items = self._items(contents, ttl_s)
        pushes = [asyncio.ensure_future(self._service.push(queue, [item], self.principal.owner)) for item in items]
        await asyncio.gather(*pushes, return_exceptions=True)
        stored = [_is_stored(push) for push in pushes]
        self.count_puts(queue, [len(one) for one, is_stored in zip(contents, stored, strict=True) if is_stored])
        return stored

    async def put_until_refused(self, queue: bytes, contents: list[bytes], ttl_s: float | None = None) -> int:
        """Store items in order until one is refused; return the number of stored items. Raises like `put`."""
        await self.prepare_put(queue)
        items = self._items(contents, ttl_s)
        if not items:
            return 0
        with contextlib.suppress(_RefusedError):
            await self._push(queue, items)
            self.count_puts(queue, list(map(len, contents)))
            return len(items)
        # Not all of them fit, and none is stored yet.
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
        """Count stored items of these sizes."""
        found = self._service.sender.state().queues.get(queue)
        if found is not None and sizes:
            counts = self._node.observed.kestrel.of(found)
            counts.put_items += len(sizes)
            counts.put_bytes += sum(sizes)

    # --- get ------------------------------------------------------------------------------------------------------

    def check_get(self, queue: bytes) -> None:
        """Refuse a fetch that `open` would refuse.

        Raises:
            LmqError: ``bad_name``, ``forbidden``; ``suspended`` while the server takes no gets.
        """
        self._check(queue, "get")

    async def open(
        self, queue: bytes, *, count: int = 1, wait_ms: int = 0, has_room: HasRoom | None = None
    ) -> list[Delivered]:
        """Open up to `count` items; none after `wait_ms`, if the queue is deleted, or if the name is an alias.

        Raises like `check_get` and `OpenReads.open`.
        """
        self.check_get(queue)
        if self.is_alias(queue):
            return []
        await self._bind(queue)
        self._service.sender.check_name(queue, self.principal.owner)
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
        """Remove the next item for good; nothing if the queue is empty or the name is an alias.

        Raises like `check_get` and `OpenReads.take_settled`.
        """
        self.check_get(queue)
        if self.is_alias(queue):
            return []
        await self._bind(queue)
        self._service.sender.check_name(queue, self.principal.owner)
        return await self._node.open_reads.take_settled(queue)

    def shown(self, queue: bytes) -> tuple[int, int]:
        """Return the number of waiting items that this node sees in a queue, and their average size in bytes.

        Other clients may fetch them first, and there may be more.
        """
        found = self._service.sender.state().queues.get(queue)
        return (0, 0) if found is None else (found.store.waiting(), found.store.body_bytes // max(1, len(found)))

    def opened(self, queue: bytes, count: int = 1) -> None:
        """Count items that went to the client as open reads."""
        found = self._service.sender.state().queues.get(queue)
        if found is not None and count:
            self._node.observed.kestrel.of(found).transactions += count

    def missed(self, queue: bytes, count: int = 1) -> None:
        """Count fetches that found nothing."""
        counts, found = self._node.observed.kestrel, self._service.sender.state().queues.get(queue)
        counts.get_misses += count
        if found is not None:
            counts.of(found).get_items_miss += count

    async def peek(self, queue: bytes, wait_ms: int = 0) -> bytes | None:
        """Return a copy of the next item, waiting up to `wait_ms` for one.

        Raises:
            LmqError: the next item cannot be determined.
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
            # After the barrier, this replica shows everything that was acknowledged before.
            await self._service.sender.barrier()
            state = self._service.sender.state()
            found = state.queues.get(queue)
            head = None if found is None or found.suspended else found.store.first_in_line(state.now_us)
            if found is None or head is None:
                return None
            if not found.store.is_expired(head, state.now_us):
                return body_of((await self._service.pulls.absent.fetched([head]))[0])

    # --- the rest -------------------------------------------------------------------------------------------------

    async def flush(self, queue: bytes) -> None:
        """Remove all waiting items; a no-op for an unknown queue and for an alias.

        Raises:
            LmqError: ``forbidden``; ``suspended`` while the server takes no puts; or the node cannot do it now.
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
        found = self._service.sender.state().queues.get(queue)
        if found is not None:
            self._node.observed.kestrel.of(found).total_flushes += 1

    async def flush_all(self, client: bytes) -> None:
        """Flush every queue, charged to this client. Raises like `flush`."""
        self._status.check_write("flush_all")
        self.principal.require_all(Role.ADMIN)
        await self._service.sender.barrier()
        counts = self._node.observed.kestrel

        def is_flushed(queue: Queue) -> bool:
            if self.is_alias(queue.name):
                return False
            counts.of(queue).total_flushes += 1
            return True

        await self._service.operations.purge_all(is_flushed, client)

    async def flush_expired(self, queue: bytes | None = None) -> int:
        """Return the number of removed expired items: always 0, because the cluster removes items when they expire.

        Raises:
            LmqError: ``forbidden``; ``suspended`` while the server takes no puts; or the node cannot do it now.
        """
        if queue is not None:
            self._status.check_write("flush_expired")
        self.principal.require_role(Role.WRITE)
        await self._service.sender.barrier()
        return 0

    async def delete(self, queue: bytes) -> None:
        """Drop the queue with its items and open reads; a no-op for an unknown queue and for an alias. Raises like `flush`."""
        self._status.check_write("delete")
        self.principal.require(Role.ADMIN, queue)
        if queue and not self.is_alias(queue):
            await self._service.delete(queue)

    def is_alias(self, queue: bytes) -> bool:
        """Return whether the name is an alias of other queues."""
        found = self._service.sender.state().queues.get(queue)
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
        """Bind a child queue to its parent, so that it gets copies of later puts."""
        parent = parent_of(queue)
        if parent is None or parent in self._service.sender.state().bindings.sources(queue):
            return
        self.principal.require(Role.WRITE, parent)
        await self._service.operations.bind(parent, queue, self.principal.owner)


class _RefusedError(Exception):
    """Refusal of an item by the queue; nothing is stored."""


def _is_stored(push: asyncio.Future[Any]) -> bool:
    """Return whether a finished push has stored its item; raise any error other than a refusal by the queue."""
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
