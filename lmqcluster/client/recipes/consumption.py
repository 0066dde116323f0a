"""The loop that passes items to a consumer."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from lmqcluster.wire.errors import LmqError, Outcome
from lmqcluster.wire.reasons import reason_of

from ..aio.client import AsyncClient
from ..message import Message
from ..options import Place, PushOptions
from ..transport.calls import Persistence
from .session_pulls import PAUSE_S, SessionPulls, Taken
from .shared.callers import Caller, logger
from .shared.envelope import pack_items, unpack_items
from .shared.errors import CorruptItemError
from .shared.options import ErrorMode, QueueOptions
from .shared.serializers import Serializer

__all__ = ["DELIVERIES_MAX", "Consumption", "ack_before_use", "content_bytes", "dead_letters"]

T = TypeVar("T")

DELIVERIES_MAX = 1 << 40
"""Default maximum of the redeliveries of a message."""


def content_bytes(message: Message) -> bytes:
    """Return the content of a message as bytes.

    Raises:
        CorruptItemError: the content is neither bytes nor a string.
    """
    content = message.content
    if isinstance(content, str):
        return content.encode()  # A client with `decode` has decoded valid UTF-8, which is lossless.
    if not isinstance(content, bytes):
        raise CorruptItemError(f"the content is not bytes but {type(content).__name__}")
    return content


class Consumption(Generic[T]):
    """Consumption of one queue: pulls its messages and passes their items to the consumer.

    Args:
        consume: the application's function.
        mode: returns the current error mode.
        place: place to which an item returns for redelivery.
    """

    def __init__(
        self,
        client: AsyncClient,
        queue: str,
        options: QueueOptions,
        serializer: Serializer[T],
        consume: Callable[[T], Any],
        caller: Caller,
        mode: Callable[[], ErrorMode],
        place: Place,
    ) -> None:
        self._client = client
        self._queue = queue
        self._options = options
        self._serializer = serializer
        self._consume = consume
        self._caller = caller
        self._mode = mode
        self._place: Place = "keep" if options.exclusive else place
        self._free = 1 if options.exclusive else caller.concurrency or options.concurrency
        # A slot becomes free for the next item only after the outcome of the settlement before is known.
        self._until_known = client._settling(Persistence.UNTIL_KNOWN)
        self._pulls = SessionPulls(self._until_known, queue, options.lease)
        self._freed = asyncio.Event()
        self._ready: deque[Taken] = deque()
        self._working: set[asyncio.Task[None]] = set()
        self._puller: asyncio.Task[None] | None = None
        self._stop: BaseException | None = None

    def start(self) -> None:
        """Begin to pull."""
        self._puller = asyncio.create_task(self._run())

    async def close(self) -> BaseException | None:
        """Stop pulling, return messages that were not begun, and cancel or wait for running consumers.

        Returns:
            The exit or interruption with which a consumer in a thread ended, if any. Raised here, it would end the event loop.
        """
        if self._puller is not None:
            await _ended([self._puller])
        ready, self._ready = self._ready, deque()
        await self._give_back([taken.message for taken in ready])
        caller = asyncio.current_task()
        working = self._working - {caller}
        if working and not self._caller.interruptible:
            await asyncio.wait(working, timeout=self._options.final_flush)
        unfinished = [task for task in working if not task.done()]
        await _ended(unfinished)
        # A thread cannot be cancelled, and a consumer that closes its queue is still running.
        if (unfinished and not self._caller.interruptible) or caller in self._working:
            await self._pulls.abandon()
        else:
            await self._pulls.close()
        return self._stop

    # --- messages -------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        while self._stop is None:
            if self._free == 0:
                self._freed.clear()
                await self._freed.wait()
                continue
            taken = self._ready.popleft() if self._ready else await self._pull()
            if taken is None:
                continue
            if not taken.is_ours():
                logger.warning(
                    "an item of %r was not handed out: the cluster has not heard of us for too long", self._queue
                )
                continue
            self._free -= 1
            task = asyncio.create_task(self._work(taken))
            self._working.add(task)
            task.add_done_callback(self._worked)

    def _worked(self, task: asyncio.Task[None]) -> None:
        self._working.discard(task)
        self._free += 1
        self._freed.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("an item of the queue %r could not be handled", self._queue, exc_info=error)

    async def _pull(self) -> Taken | None:
        try:
            self._ready.extend(await self._pulls.pull(max(self._options.prefetch, self._free)))
        except LmqError as error:
            logger.warning("no items can be taken from the queue %r, it is tried again: %s", self._queue, error)
            await asyncio.sleep(PAUSE_S)
        return self._ready.popleft() if self._ready else None

    async def _give_back(self, messages: Sequence[Message]) -> None:
        try:
            await self._client.put_back_many(self._queue, [message.id for message in messages])
        except LmqError as error:
            logger.warning("items of %r could not be given back, they come again later: %s", self._queue, error)

    # --- items ----------------------------------------------------------------------------------------------------

    async def _work(self, taken: Taken) -> None:
        tracer = self._client._tracer
        if tracer is None:
            await self._handle(taken)
            return
        with tracer.processing(self._client, taken.message._reply, self._queue):
            await self._handle(taken)

    async def _handle(self, taken: Taken) -> None:
        message = taken.message
        try:
            items = self._items(message)
            if items is None:
                await self._bury(message)
            elif self._options.safe:
                await self._consume_safely(taken, items)
            elif await ack_before_use(self._client, message):
                for _, item in items:
                    await self._hand_over(message, item)
        except LmqError as error:
            logger.warning("an item of %r was not settled, it may come again: %s", self._queue, error)
            if self._options.exclusive:
                # No later item may overtake it.
                self._ready.clear()
                await self._pulls.give_up()
                await asyncio.sleep(PAUSE_S)
            elif error.outcome is Outcome.NOT_APPLIED and error.code != "lease_lost":
                # The settlement can never succeed, and the item would stay leased as long as the session.
                await self._client.release(self._queue, message.id, delay=self._options.lease)
        except asyncio.CancelledError:
            if self._caller.interruptible and self._options.safe:
                await self._give_back([message])
            raise

    def _items(self, message: Message) -> list[tuple[bytes, T]] | None:
        """Return the items of a message, each as stored and deserialized; None if they are unreadable."""
        try:
            data = unpack_items(content_bytes(message))
            return [(item, self._serializer.deserialize(item)) for item in data]
        except Exception as error:  # noqa: BLE001 - the application's serializer may raise any exception
            logger.error("a message of the queue %r cannot be read: %r", self._queue, error)
            return None

    async def _bury(self, message: Message) -> None:
        if self._options.max_attempts is None:
            await message.ack()
            return
        async with self._until_known.transaction() as transaction:
            transaction.push(dead_letters(self._queue), message.content, attributes=message.attributes)
            transaction.done(message)

    async def _hand_over(self, message: Message, item: T) -> BaseException | None:
        tracer = self._client._tracer
        function = self._consume if tracer is None else tracer.in_context(self._consume)
        error = await self._caller.consume(function, item)
        if error is None:
            return None
        if tracer is not None:
            tracer.note_failure(error)
        if not isinstance(error, Exception):
            self._stop = error
            self._freed.set()
            if self._puller is not None:
                self._puller.cancel()
        attempt = message.delivery or 1
        logger.error("the consumer of the queue %r failed, attempt %d", self._queue, attempt, exc_info=error)
        return error

    async def _consume_safely(self, taken: Taken, items: list[tuple[bytes, T]]) -> None:
        message = taken.message
        for done, (_, item) in enumerate(items):
            if not taken.is_ours():
                logger.warning(
                    "items of %r were not handed out, they come again: the cluster has not heard of us", self._queue
                )
                return
            error = await self._hand_over(message, item)
            if error is None:
                continue
            if not isinstance(error, Exception):
                await self._give_back([message])
                return
            if self._mode() is not ErrorMode.DELETE:
                await self._return(message, [data for data, _ in items], done, reason_of(error))
                return
        if not await message.ack():
            logger.warning(
                "an item of %r was delivered to another consumer before its ack, it comes again", self._queue
            )

    async def _return(self, message: Message, items: list[bytes], done: int, reason: str) -> None:
        delay = self._options.retry_delay or None
        if done and not self._options.exclusive and self._mode() is ErrorMode.REQUEUE:
            options: PushOptions = {
                "priority": message.priority,
                "label": message.label,
                "delay": delay,
                "attributes": message.attributes,
            }
            try:
                async with self._until_known.transaction() as transaction:
                    transaction.push(self._queue, pack_items(items[done:]), **options)
                    transaction.done(message)
            except LmqError as error:
                if error.code != "full":
                    raise
            else:
                return
        if self._options.exclusive and not delay:
            # No later item may overtake it, so prefetched messages return to the queue first.
            ready, self._ready = self._ready, deque()
            await self._client.put_back_many(self._queue, [taken.message.id for taken in ready])
        if not await message.nack(delay=delay, place=self._place, reason=reason):
            logger.warning("an item of %r was delivered to another consumer before it was given back", self._queue)


async def ack_before_use(client: AsyncClient, message: Message) -> bool:
    """Ack a message before its use, so that no other consumer receives it too. Return whether it may be used.

    Raises:
        LmqError: the outcome is unknown; the message returns to the queue unless it was acknowledged.
    """
    try:
        return await client._settling(Persistence.WHILE_AWAITED).done(message.queue, message.id)
    except BaseException:
        # The message is not used. The client does not retry the ack, so this succeeds if the ack had no effect.
        client._give_back(message)
        raise


def dead_letters(queue: str) -> str:
    """Return the name of the queue for dead letters."""
    return f"{queue}.dead"


async def _ended(tasks: Sequence[asyncio.Task[None]]) -> None:
    """Cancel tasks and wait for their end."""
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)
