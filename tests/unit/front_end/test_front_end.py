"""A front end and its node: connections that the node refuses."""

from __future__ import annotations

import asyncio
import resource
import socket

import pytest

from lmqcluster.front_end import front_end
from lmqcluster.front_end.front_end import FrontEnd
from lmqcluster.ports.connection_limiter import Bounds, ConnectionLimiter, ConnectionSlot
from lmqcluster.ports.front_ends.link import Link
from lmqcluster.ports.front_ends.relayed_port import RelayedPort
from lmqcluster.ports.memory import Memory

CONNECTIONS, CLIENTS = 4, 20


class _EndingLimiter(ConnectionLimiter):
    """A limiter that ends each connection while the front end opens it."""

    def enter(self, address: object) -> ConnectionSlot | None:
        slot = super().enter(address)
        assert slot is not None
        asyncio.get_running_loop().call_soon(slot.abort)
        return slot


def test_connections_that_end_while_they_are_opened_leave_their_places(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their clients stay, and more of them come than a front end may have."""
    monkeypatch.setattr(front_end, "OTHER_DESCRIPTORS", resource.getrlimit(resource.RLIMIT_NOFILE)[0] - CONNECTIONS)

    async def main() -> None:
        gate = _EndingLimiter("rpc", Bounds(100, 100), Memory(1 << 20), lambda _address: True)
        listening = socket.create_server(("127.0.0.1", 0))
        listening.setblocking(False)
        address = listening.getsockname()
        port = RelayedPort(gate, lambda _slot: asyncio.Protocol(), [listening], lambda: None, is_tls=False)
        link, program = Link({0: port}), FrontEnd(None)
        ours, theirs = socket.socketpair()
        await asyncio.get_running_loop().create_connection(lambda: link.channel, sock=ours)
        await program.start(theirs, [[0, "rpc", [listening.detach()], False]])
        clients = [await asyncio.open_connection(*address) for _ in range(CLIENTS)]
        ends = await asyncio.wait_for(asyncio.gather(*(reader.read() for reader, _writer in clients)), 20)
        assert ends == [b""] * CLIENTS
        assert gate.connections == 0
        for _reader, writer in clients:
            writer.close()
        link.channel.close()
        await program.ended.wait()
        await program.finish()
        gate.close()

    asyncio.run(main())
