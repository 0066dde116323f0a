"""D30: connections of one peer replace one another; messages of an older one are dropped once a newer one has sent."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest
import uvloop

from lmqcluster.replication.base.membership import PeerNode
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


async def _answers_of(incarnation: int) -> tuple[PeerTransport, str]:
    """Return a process of the member n2, and the address at which it listens."""
    process = PeerTransport(
        Identity("n2", incarnation, "127.0.0.1:1"), SECURITY, lambda _peer, _message: None, _never_asked
    )
    return process, f"127.0.0.1:{await process.listen('127.0.0.1', 0)}"


def test_a_node_drops_its_connection_to_an_old_process_of_a_peer() -> None:
    """The old process hangs at an old address, and would be sent to until its buffers are full. Another connection of the
    same process changes nothing.
    """

    async def scenario() -> None:
        received: asyncio.Queue[str] = asyncio.Queue()
        owner = PeerTransport(
            Identity("n1", 1, "127.0.0.1:2"),
            SECURITY,
            lambda peer, _message: received.put_nowait(peer.id),
            _never_asked,
        )
        lost = asyncio.Event()
        owner.setOnNodeDisconnectedCallback(lambda _node: lost.set())
        address = f"127.0.0.1:{await owner.listen('127.0.0.1', 0)}"
        old, old_address = await _answers_of(1)
        new, _new_address = await _answers_of(2)
        owner.addNode(PeerNode("n2", old_address))
        async with asyncio.timeout(DEADLINE_S):
            for process, drops in ((old, False), (old, False), (new, True)):
                stream = await dial(process.me, SECURITY, address, "n1")
                while not owner.connected_ids():  # noqa: ASYNC110 - a link that connects has no event
                    await asyncio.sleep(0.01)
                lost.clear()
                stream.write(_vote(1))
                assert await received.get() == "n2"
                if drops:
                    await lost.wait()
                assert lost.is_set() is drops
                stream.close()
        for transport in (owner, old, new):
            await transport.close()

    asyncio.run(scenario())


def test_connections_to_a_vanished_machine_end_within_seconds() -> None:
    """Both ends probe: the accepting one never sends, and the dialling one may have nothing to send."""

    async def scenario() -> None:
        listener, address = await _answers_of(1)
        async with asyncio.timeout(DEADLINE_S):
            dialled = await dial(Identity("n1", 1, "127.0.0.1:2"), SECURITY, address, "n2")
            (accepted,) = listener._open
            for stream in (dialled, accepted):
                assert stream._transport is not None
                sock = stream._transport.get_extra_info("socket")
                assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
                names = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
                idle_s, interval_s, count = (sock.getsockopt(socket.IPPROTO_TCP, name) for name in names)
                assert idle_s + interval_s * count <= 10
        dialled.close()
        await listener.close()

    asyncio.run(scenario())
