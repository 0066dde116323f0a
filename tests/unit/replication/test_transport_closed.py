"""A link whose peer has just died."""

from __future__ import annotations

import asyncio

import pytest
import uvloop

from lmqcluster.replication.peers.frames import FrameStream


class _Closing(FrameStream):
    def frame_received(self, payload: bytes) -> None:
        pytest.fail(f"nothing is sent to it, yet it got {payload!r}")


async def _write_after_close() -> None:
    server = await asyncio.get_running_loop().create_server(asyncio.Protocol, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    _, frames = await asyncio.get_running_loop().create_connection(_Closing, "127.0.0.1", port)
    frames.write(b"first")
    frames.close()
    # The loop has not reported the lost connection yet; writing must be harmless.
    frames.write(b"second")
    frames.write(b"third", b"and more")
    await asyncio.sleep(0)
    frames.write(b"fourth")
    server.close()
    await server.wait_closed()


@pytest.mark.parametrize("runner", [asyncio.run, uvloop.run])
def test_writing_to_a_link_that_is_being_closed_is_harmless(runner: object) -> None:
    """uvloop raises on writing to a closed transport, which would stop a healthy node."""
    runner(_write_after_close())  # type: ignore[operator]
