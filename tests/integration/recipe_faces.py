"""Both flavours of the recipes behind one blocking interface, so that a test covers both."""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Self

from lmqcluster import AsyncClient, Client
from lmqcluster.client import recipes
from lmqcluster.client.recipes import aio

__all__ = ["Collector", "Face", "Wrapped", "open_face", "within"]

PATIENCE_S = 120.0


def within(probe: Callable[[], Any], what: str, timeout_s: float = PATIENCE_S) -> Any:
    """Wait until the function returns a true value."""
    deadline = time.monotonic() + timeout_s
    while not (value := probe()):
        assert time.monotonic() < deadline, f"{what}: not within {timeout_s:g} s"
        time.sleep(0.01)
    return value


class Wrapped:
    """An object of either flavour whose methods wait for their results."""

    def __init__(self, face: Face, wrapped: Any) -> None:
        self.wrapped = wrapped
        self._face = face

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.wrapped, name)
        return (lambda *a, **k: self._face.run(value, *a, **k)) if callable(value) else value

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __len__(self) -> int:
        return len(self.wrapped)


class Face:
    """One flavour and a client of it."""

    def __init__(self, addresses: Any, loop: asyncio.AbstractEventLoop | None, **options: Any) -> None:
        self.loop = loop
        self.addresses = addresses
        self.module: Any = recipes if loop is None else aio
        self.client: Any = Client(addresses, **options) if loop is None else AsyncClient(addresses, **options)

    def run(self, call: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Return the result of a call of either flavour."""
        loop = self.loop
        if loop is None:
            return call(*arguments, **options)

        async def made() -> Any:
            value = call(*arguments, **options)
            return await value if inspect.isawaitable(value) else value

        return asyncio.run_coroutine_threadsafe(made(), loop).result()

    def consumer(self, function: Callable[[Any], None]) -> Any:
        """Return a consumer of this flavour that calls a function which may block."""
        if self.loop is None:
            return function

        async def consume(item: Any) -> None:
            await asyncio.to_thread(function, item)

        return consume

    def make(self, kind: str, name: str, consumer: Any = None, serializer: Any = None, **options: Any) -> Wrapped:
        """Return a queue that has not been started. The consumer is a function that may block, or a consumer object."""
        consumer = (
            self.consumer(consumer) if inspect.isroutine(consumer) or isinstance(consumer, Collector) else consumer
        )
        used = self.module.QueueOptions(**options)
        text = serializer or self.module.TextSerializer()
        return Wrapped(self, getattr(self.module, kind)(self.client, name, text, consumer, used))

    def queue(self, name: str, consumer: Any = None, **options: Any) -> Wrapped:
        """Return a `DistributedQueue` that has not been started."""
        return self.make("DistributedQueue", name, consumer, **options)

    def other(self) -> Any:
        """Return another client of the same cluster, with the same flavour."""
        return another(self)

    def close(self) -> None:
        """Disconnect."""
        self.run(self.client.close, 0)


class Collector:
    """A consumer function that keeps its items; it can be paused, and can fail."""

    def __init__(self, fail: Callable[[Any], bool] = lambda item: False) -> None:
        self.items: list[Any] = []
        self.failed: list[Any] = []
        self.go = threading.Event()
        self.go.set()
        self.in_hand = threading.Event()
        self.most_at_once = 0
        self._at_once = 0
        self._fail = fail
        self._lock = threading.Lock()

    def __call__(self, item: Any) -> None:
        with self._lock:
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)
        try:
            self.in_hand.set()
            assert self.go.wait(PATIENCE_S)
            with self._lock:
                if self._fail(item):
                    self.failed.append(item)
                    raise ValueError(f"{item!r} is not wanted")
                self.items.append(item)
        finally:
            with self._lock:
                self._at_once -= 1

    def wait(self, count: int) -> list[Any]:
        """Return the items as soon as there are `count`."""
        within(lambda: len(self.items) >= count, f"{count} items")
        return list(self.items)


@contextmanager
def open_face(flavour: str, addresses: Any, **options: Any) -> Iterator[Face]:
    """Return a flavour, ``threads`` or ``aio``, with a client."""
    if flavour == "threads":
        face = Face(addresses, None, **options)
        try:
            yield face
        finally:
            face.close()
        return
    loop = asyncio.new_event_loop()
    loop.set_default_executor(ThreadPoolExecutor(16))
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    face = Face(addresses, loop, **options)
    try:
        yield face
    finally:
        face.close()
        asyncio.run_coroutine_threadsafe(loop.shutdown_default_executor(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@contextmanager
def another(face: Face) -> Iterator[Face]:
    """Return another client of the same flavour, on the same loop."""
    made = Face(face.addresses, face.loop)
    try:
        yield made
    finally:
        made.close()
