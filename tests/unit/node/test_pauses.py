"""Pauses of the event loop are logged with what ran in them."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import time
from collections.abc import Callable
from typing import Any

from structlog.testing import capture_logs

from lmqcluster.node.process.pauses import PauseWatch

PAUSE_S = 0.05


def pause_with(work: Callable[[PauseWatch], object]) -> dict[str, Any]:
    """Run `work` on a watched event loop; return the line of its pause, the longest."""

    async def main() -> None:
        watch = PauseWatch(0.02)
        keeper = asyncio.ensure_future(watch.keep())
        await asyncio.sleep(0.01)
        work(watch)
        await asyncio.sleep(0.01)
        keeper.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await keeper

    with capture_logs() as lines:
        asyncio.run(main())
    return dict(max((line for line in lines if line["event"] == "event loop paused"), key=lambda line: line["ms"]))


def test_a_function_that_takes_long() -> None:
    def compute(watch: PauseWatch) -> None:
        until_s = time.thread_time() + PAUSE_S
        while watch._stack is None or time.thread_time() < until_s:
            pass

    line = pause_with(compute)
    assert line["ms"] >= PAUSE_S * 1000 / 2
    assert line["processor_ms"] >= PAUSE_S * 1000 / 2
    assert "compute" in line["at"]


def test_a_thread_that_does_not_run() -> None:
    line = pause_with(lambda _watch: time.sleep(PAUSE_S))
    assert line["cause"] == "other work"
    assert line["processor_ms"] < line["ms"] / 2


def test_a_collection_of_garbage() -> None:
    def collect(_watch: PauseWatch) -> None:
        until_s = time.thread_time() + PAUSE_S
        while time.thread_time() < until_s:
            gc.collect()

    line = pause_with(collect)
    assert line["cause"] == "garbage collection"
    assert line["garbage_ms"] > line["ms"] / 2


def test_short_turns_are_no_pauses() -> None:
    async def main() -> None:
        watch = PauseWatch(3600)
        keeper = asyncio.ensure_future(watch.keep())
        for _ in range(20):
            await asyncio.sleep(0.002)
        keeper.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await keeper
        assert watch._observe_collection not in gc.callbacks

    with capture_logs() as lines:
        asyncio.run(main())
    assert lines == []
