"""D30: connections of one peer replace one another; messages of an older one are dropped once a newer one has sent."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import uvloop

from lmqcluster.replication.peers import messages
from lmqcluster.replication.peers.dialer import dial
from lmqcluster.replication.peers.handshake import HandshakeError, Identity
from lmqcluster.replication.peers.security import PeerSecurity
from lmqcluster.replication.peers.transport import PeerTransport

SECURITY = PeerSecurity(b"the cluster's secret")
DEADLINE_S = 120.0


async def _never_asked(_verb: str, _arguments: list[Any]) -> dict[str, Any]:
    raise AssertionError("unexpected question")


def _vote(term: int) -> bytes:
    return messages.encode({"type": "response_vote", "term": term})


async def _two_connections() -> None:
    received: asyncio.Queue[int] = asyncio.Queue()
    listener = PeerTransport(
        Identity("n2", 1, "127.0.0.1:1"),
        SECURITY,
        lambda _peer, message: received.put_nowait(message["term"]),
        _never_asked,
    )
    address = f"127.0.0.1:{await listener.listen('127.0.0.1', 0)}"
    dialer = Identity("n1", 1, "127.0.0.1:2")
    async with asyncio.timeout(DEADLINE_S):
        older = await dial(dialer, SECURITY, address, "n2")
        older.write(_vote(1))
        assert await received.get() == 1
        newer = await dial(dialer, SECURITY, address, "n2")
        older.write(_vote(2))
        assert await received.get() == 2
        newer.write(_vote(3))
        assert await received.get() == 3
        older.write(_vote(4))
        await older.closed.wait()
        newer.write(_vote(5))
        assert await received.get() == 5
    newer.close()
    await listener.close()


@pytest.mark.parametrize("runner", [asyncio.run, uvloop.run])
def test_older_connection_ends_when_the_newer_one_speaks(runner: Any) -> None:
    runner(_two_connections())


def test_a_connection_accepted_while_the_transport_stops_listening_is_closed() -> None:
    """Its peer would send to a member that no longer exists, and never dial the one in its place."""

    async def scenario() -> None:
        owner = PeerTransport(Identity("n2", 1, "127.0.0.1:1"), SECURITY, lambda _peer, _message: None, _never_asked)
        address = f"127.0.0.1:{await owner.listen('127.0.0.1', 0)}"
        assert owner._listener is not None
        opening = owner._listener._opening
        dialing = asyncio.ensure_future(dial(Identity("n1", 1, "127.0.0.1:2"), SECURITY, address, "n2"))
        while not opening:  # noqa: ASYNC110 - a task that begins has no event
            await asyncio.sleep(0)
        owner.stop_listening()
        with pytest.raises((OSError, EOFError, HandshakeError)):
            await asyncio.wait_for(dialing, DEADLINE_S)
        await owner.close()

    asyncio.run(scenario())
