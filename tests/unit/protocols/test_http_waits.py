"""Waiting requests: cancelled by their client, or ended because the node stops."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from lmqcluster.core import Role
from lmqcluster.node.access.access import Principal
from lmqcluster.protocols.http.server.waits import Waits

CLIENT = Principal("client", Role.WRITE, b".*")


def run(main: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(main, 5))


def test_the_result_passes_through() -> None:
    async def main() -> None:
        assert await Waits().run(CLIENT, asyncio.sleep(0, "message"), None) == "message"

    run(main())


def test_ending_the_waits_answers_nothing() -> None:
    async def main() -> None:
        waits = Waits()
        task = asyncio.create_task(waits.run(CLIENT, asyncio.Event().wait(), False))
        await asyncio.sleep(0)
        waits.end()
        assert await task is False
        assert await waits.run(CLIENT, asyncio.Event().wait(), False) is False

    run(main())


def test_a_closed_connection_cancels() -> None:
    async def main() -> None:
        waits = Waits()
        cancelled = []

        async def pull() -> None:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.append(True)
                raise

        task = asyncio.create_task(waits.run(CLIENT, pull(), None))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert cancelled == [True]

    run(main())


def test_a_revoked_token_ends_its_waits_and_no_others() -> None:
    async def main() -> None:
        waits = Waits()
        gone = Principal("gone", Role.WRITE, b".*")
        theirs = asyncio.create_task(waits.run(gone, asyncio.Event().wait(), None))
        message = asyncio.Event()
        ours = asyncio.create_task(waits.run(CLIENT, message.wait(), None))
        await asyncio.sleep(0)
        gone.revoke()
        waits.end_revoked()
        assert await theirs is None
        message.set()
        assert await ours is True

    run(main())
