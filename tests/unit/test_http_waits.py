"""Requests that wait: cancelled by their client, or ended because the node stops."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from lmqcluster.protocols.http.waits import Waits


def run(main: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(main, 5))


def test_the_result_passes_through() -> None:
    async def main() -> None:
        assert await Waits().run(asyncio.sleep(0, "message"), None) == "message"

    run(main())


def test_ending_the_waits_answers_nothing() -> None:
    async def main() -> None:
        waits = Waits()
        task = asyncio.create_task(waits.run(asyncio.Event().wait(), False))
        await asyncio.sleep(0)
        waits.end()
        assert await task is False
        assert await waits.run(asyncio.Event().wait(), False) is False

    run(main())


def test_a_client_that_hangs_up_cancels() -> None:
    async def main() -> None:
        waits = Waits()
        cancelled = []

        async def pull() -> None:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.append(True)
                raise

        task = asyncio.create_task(waits.run(pull(), None))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert cancelled == [True]

    run(main())
