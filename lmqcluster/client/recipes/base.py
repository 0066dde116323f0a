"""Base class of the recipes' queues, for asyncio."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable
from types import TracebackType
from typing import Any, ClassVar, Generic, Self, TypeVar

from lmqcluster.wire.errors import LmqError

from ..aio.client import AsyncClient
from ..options import Place, PushOptions
from .consumption import DELIVERIES_MAX, Consumption, dead_letters
from .puts import Put, Puts
from .shared.callers import Caller, OnLoop
from .shared.envelope import pack_items
from .shared.errors import QueueStateError
from .shared.options import ConnectionState, ConsumerLike, ErrorMode, PutListener, QueueOptions
from .shared.serializers import Serializer
from .states import ConnectionStates

__all__ = ["QueueBase", "deadline_of"]

T = TypeVar("T")


def deadline_of(timeout: float | None) -> float | None:
    """Return the loop time in `timeout` seconds; None without a timeout."""
    if timeout is None:
        return None
    if not (math.isfinite(timeout) and timeout >= 0):
        raise ValueError(f"a timeout must be 0 seconds or more, not {timeout!r}")
    return asyncio.get_running_loop().time() + timeout


class QueueBase(Generic[T]):
    """A queue that passes its items to a consumer.

    ``async with`` starts and closes it. Without a consumer, it only stores items.
    """

    _place: ClassVar[Place] = "tail"

    def __init__(
        self,
        client: AsyncClient,
        name: str,
        serializer: Serializer[T],
        consumer: ConsumerLike[T] | None = None,
        options: QueueOptions | None = None,
        *,
        caller: Caller | None = None,
    ) -> None:
        """Configure the queue without sending anything.

        Args:
            client: the client to use, which the application closes.
            name: name of the queue in the cluster.
            serializer: converts items to bytes and back.
            consumer: receives the items; may be a function.
            options: default `QueueOptions()`.
            caller: runs the consumer; default: on the event loop.
        """
        self._client = client
        self.name = name
        self._serializer = serializer
        self._options = options or QueueOptions()
        self._consumer = consumer
        self._caller: Caller = caller or OnLoop()
        self._mode = self._options.error_mode
        self._listeners: list[PutListener[T]] = []
        self._last_count = 0
        self._started = self._closed = False
        self._puts: Puts | None = None
        self._consumption: Consumption[T] | None = None
        self._states: asyncio.Queue[ConnectionState] = asyncio.Queue()
        self._teller: asyncio.Task[None] | None = None

    # --- life -----------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Create the queue if needed, and begin to consume.

        Raises:
            QueueStateError: the queue was already started.
            LmqError: the cluster is unreachable, or refuses the queue.
        """
        if self._started:
            raise QueueStateError(f"the queue {self.name!r} was started before")
        self._started = True
        if self._options.max_attempts is None:
            await self._client.update_props(self.name, {"retry": DELIVERIES_MAX}, only_unset=True)
        if properties := self._properties():
            await self._client.update_props(self.name, properties)
        self._puts = Puts(self._client, self.name, self._completed, self._failed, self._options.max_items)
        ConnectionStates.of(self._client).listen(self._states.put_nowait, self._options.lease)
        if self._consumer is not None:
            consume: Any = getattr(self._consumer, "consume_message", self._consumer)
            self._teller = asyncio.create_task(self._tell_states())
            self._consumption = Consumption(
                self._client,
                self.name,
                self._options,
                self._serializer,
                consume,
                self._caller,
                lambda: self._mode,
                self._place,
            )
            self._consumption.start()

    def _properties(self) -> dict[str, Any]:
        """Return the properties that the options require."""
        properties: dict[str, Any] = {}
        if self._options.max_attempts is not None:
            properties = {"retry": self._options.max_attempts - 1, "dead_letter_queue": dead_letters(self.name)}
        if self._options.exclusive:
            properties["exclusive"] = True
        if self._options.max_items is not None:
            properties["max_items"] = self._options.max_items
        return properties

    async def close(self) -> None:
        """Stop consuming, flush puts for up to `QueueOptions.final_flush` seconds, and end. A no-op the second time.

        Items whose consumer was not called yet return to the queue. A consumer that is a coroutine is cancelled, and its item
        returns too. A consumer in a thread has `QueueOptions.final_flush` seconds to finish; otherwise its item returns when the
        lease expires.
        """
        await self._shut()

    async def _shut(self) -> BaseException | None:
        """Close the queue and return the exit or interruption with which a consumer in a thread ended, if any."""
        if self._closed or self._puts is None:
            self._closed = True
            return None
        self._closed = True
        stop: BaseException | None = None
        try:
            if self._consumption is not None:
                stop = await self._consumption.close()
        finally:
            try:
                if self._options.final_flush:
                    await self._puts.flush(self._options.final_flush)
            finally:
                await self._puts.close()
                ConnectionStates.of(self._client).leave(self._states.put_nowait)
                if self._teller is not None:
                    self._teller.cancel()
                    await asyncio.wait([self._teller])
                self._listeners.clear()
                self._caller.close()
        return stop

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _tell_states(self) -> None:
        changed = getattr(self._consumer, "state_changed", None)
        state = ConnectionState.CONNECTED
        while True:
            if changed is not None:
                await self._caller.notify(changed, state)
            state = await self._states.get()

    # --- puts -----------------------------------------------------------------------------------------------------

    async def _put(self, item: T, timeout: float | None, options: PushOptions) -> bool:
        body = pack_items([self._serializer.serialize(item)])
        return await self._store(Put(item, False, body, options), timeout)

    async def _put_multi(self, items: Iterable[T], timeout: float | None, options: PushOptions) -> bool:
        listed = list(items)
        body = pack_items([self._serializer.serialize(item) for item in listed])
        return await self._store(Put(listed, True, body, options), timeout)

    async def _store(self, put: Put, timeout: float | None) -> bool:
        puts = self._open_puts()
        if self._client._tracer is not None:
            # Another task sends the message, perhaps several times.
            put.options = self._client._tracer.with_current(put.options)
        deadline = deadline_of(timeout)
        if self._options.in_background:
            return await puts.background(put, deadline)
        return await puts.foreground(put, deadline)

    def _open_puts(self) -> Puts:
        if self._puts is None or self._closed:
            raise QueueStateError(f"the queue {self.name!r} is {'closed' if self._closed else 'not started'}")
        return self._puts

    async def flush_puts(self, timeout: float | None = None) -> bool:
        """Wait until all puts are stored; return False if some are not after `timeout` seconds.

        Raises:
            PutError: a put in the background has failed since the last flush.
        """
        return await self._open_puts().flush(timeout)

    def add_put_listener(self, listener: PutListener[T]) -> None:
        """Add a listener, which is called for every later put."""
        self._listeners.append(listener)

    def remove_put_listener(self, listener: PutListener[T]) -> None:
        """Remove a listener; a no-op if it was not added."""
        if listener in self._listeners:
            self._listeners.remove(listener)

    async def _completed(self, put: Put) -> None:
        for listener in tuple(self._listeners):
            told = listener.put_multi_completed if put.is_multi else listener.put_completed
            await self._caller.notify(told, put.item)

    async def _failed(self, put: Put, error: Exception) -> None:
        for listener in tuple(self._listeners):
            # Listeners written for Curator do not have this method.
            told = getattr(listener, "put_failed", None)
            if told is not None:
                await self._caller.notify(told, put.item, error)

    # --- the rest -------------------------------------------------------------------------------------------------

    @property
    def error_mode(self) -> ErrorMode:
        """Handling of an item whose consumer raised."""
        return self._mode

    def set_error_mode(self, mode: ErrorMode) -> None:
        """Change between REQUEUE and DELETE.

        Raises:
            ValueError: the queue is not in safe mode, or the old or new mode is DEAD_LETTER, which only the options can select.
        """
        if not self._options.safe:
            raise ValueError("an error mode needs safe=True: otherwise items are acknowledged before they are consumed")
        if ErrorMode.DEAD_LETTER in {mode, self._mode} and mode is not self._mode:
            raise ValueError("DEAD_LETTER is chosen with QueueOptions, because the cluster has to know max_attempts")
        self._mode = mode

    async def message_count(self) -> int:
        """Return the number of waiting messages, without those that consumers hold."""
        self._last_count = await self._count()
        return self._last_count

    async def _count(self) -> int:
        return (await self._client.backlog(queue=self.name)).messages

    @property
    def last_message_count(self) -> int:
        """Last result of `message_count`, 0 before the first."""
        return self._last_count

    async def _or_none_found(self, count: Any) -> int:
        """Return a count, 0 if the queue no longer exists."""
        try:
            return int(await count)
        except LmqError as error:
            if error.code != "queue_not_found":
                raise
            return 0
