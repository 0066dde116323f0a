"""Ctrl-C in commands that need a moment to stop gracefully."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

import click

__all__ = ["in_thread", "run_until_interrupted"]

T = TypeVar("T")


def run_until_interrupted(main: Callable[[asyncio.Event], Awaitable[T]]) -> T:
    """Run `main` with an event that the first Ctrl-C or SIGTERM sets; the second one cancels it.

    Raises:
        KeyboardInterrupt: there was a second signal.
    """

    async def supervise() -> T:
        stop = asyncio.Event()
        task = asyncio.ensure_future(main(stop))

        def on_signal() -> None:
            if stop.is_set():
                task.cancel()
                return
            stop.set()
            click.echo(
                "Stopping after requests in progress are answered; press Ctrl-C again to stop at once.", err=True
            )

        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, on_signal)
        try:
            return await task
        except asyncio.CancelledError:
            raise KeyboardInterrupt from None
        finally:
            if stop.is_set():
                _ignore_further_signals(loop)

    return asyncio.run(supervise())


def _ignore_further_signals(loop: asyncio.AbstractEventLoop) -> None:
    """Ignore signals while the program ends, so that they do not change its exit status and last output."""
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.remove_signal_handler(number)
        signal.signal(number, signal.SIG_IGN)


def in_thread(function: Callable[[], T]) -> asyncio.Future[T]:
    """Run a function that may block forever, such as a read of standard input, in a daemon thread.

    Unlike threads of an executor, the program does not wait for this one at exit.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)  # type: ignore[arg-type]  # None is a result too

    def work() -> None:
        result: T | None = None
        error: BaseException | None = None
        try:
            result = function()
        except BaseException as exc:  # noqa: BLE001  passed on to the awaiting caller
            error = exc
        # The loop may be closed; then there is no caller to notify.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(settle, result, error)

    threading.Thread(target=work, daemon=True).start()
    return future
