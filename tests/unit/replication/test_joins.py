"""Large messages are assembled in several turns, in order, and no caller waits long for a turn."""

from __future__ import annotations

import asyncio
import io
import random
from collections.abc import Awaitable, Callable

from hypothesis import given
from hypothesis import strategies as st

from lmqcluster.replication.peers import chunked_copy as module
from lmqcluster.replication.peers.chunked_copy import ChunkedCopy


def run(scenario: Callable[[ChunkedCopy], Awaitable[None]]) -> None:
    """Run a scenario."""

    async def main() -> None:
        joins = ChunkedCopy()
        async with asyncio.timeout(30):
            await scenario(joins)
        joins.close()

    asyncio.run(main())


@given(lists=st.lists(st.lists(st.binary()), min_size=1))
def test_results_equal_the_input_in_call_order(lists: list[list[bytes]]) -> None:
    async def scenario(joins: ChunkedCopy) -> None:
        joined: asyncio.Queue[bytes] = asyncio.Queue()
        for parts in lists:
            joins.join(parts, lambda stream: joined.put_nowait(stream.getvalue()))
        assert joined.empty()
        assert [await joined.get() for _ in lists] == [b"".join(parts) for parts in lists]

    run(scenario)


def test_other_work_gets_turns_and_no_turn_copies_more_than_a_slice() -> None:
    """This holds for many small parts and for a large one."""
    body = random.Random(1).randbytes(8 * module.SLICE_BYTES + 5)
    pieces = [body[start : start + 100_000] for start in range(0, len(body), 100_000)]

    async def scenario(joins: ChunkedCopy) -> None:
        for parts in ([body], pieces):
            done: asyncio.Future[io.BytesIO] = asyncio.get_running_loop().create_future()
            joins.join(parts, done.set_result)
            turns = 0
            while not done.done():
                turns += 1
                await asyncio.sleep(0)
            assert turns >= 9
            assert done.result().getvalue() == body

    run(scenario)


def test_the_result_is_returned_without_another_copy() -> None:
    async def scenario(joins: ChunkedCopy) -> None:
        done: asyncio.Future[io.BytesIO] = asyncio.get_running_loop().create_future()
        joins.join([bytes(9), b"x" * 5_000_000], done.set_result)
        stream = await done
        stream.seek(0)
        stream.write(b"head")
        assert stream.getvalue() is stream.getvalue()
        assert stream.getvalue() == b"head" + bytes(5) + b"x" * 5_000_000

    run(scenario)


def test_incomplete_results_are_not_delivered_after_close() -> None:
    async def scenario(joins: ChunkedCopy) -> None:
        delivered: list[io.BytesIO] = []
        joins.join([b"x" * (3 * module.SLICE_BYTES)], delivered.append)
        joins.join([b"y"], delivered.append)
        await asyncio.sleep(0)
        joins.close()
        for _ in range(10):
            await asyncio.sleep(0)
        assert not delivered

    run(scenario)
