"""A front end and its node: connections that the node refuses, and large answers."""

from __future__ import annotations

import asyncio
import resource
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvloop
from lmqcluster_cli.shared.certificates import Authority

from lmqcluster.front_end import front_end
from lmqcluster.front_end.front_end import FrontEnd
from lmqcluster.node.access.tls import ServerTls
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
        async with _served(gate, asyncio.Protocol) as address:
            clients = [await asyncio.open_connection(*address) for _ in range(CLIENTS)]
            ends = await asyncio.wait_for(asyncio.gather(*(reader.read() for reader, _writer in clients)), 20)
            assert ends == [b""] * CLIENTS
            assert gate.connections == 0
            for _reader, writer in clients:
                writer.close()

    asyncio.run(main())


class _Answering(asyncio.Protocol):
    """A port whose requests are lines with the size of the answer."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._transport.write(b"x" * int(data))


@pytest.mark.parametrize("factory", [asyncio.new_event_loop, uvloop.new_event_loop])
@pytest.mark.parametrize("has_tls", [False, True])
def test_answers_of_many_windows_arrive(
    tmp_path: Path, factory: Callable[[], asyncio.AbstractEventLoop], *, has_tls: bool
) -> None:
    Authority.create(tmp_path).issue("n1", ["localhost"], 1, replace=False)
    tls = ServerTls(tmp_path / "n1.crt", tmp_path / "n1.key", None) if has_tls else None
    context = ssl.create_default_context(cafile=str(tmp_path / "ca.crt")) if has_tls else None

    async def main() -> None:
        gate = ConnectionLimiter("rpc", Bounds(100, 100), Memory(1 << 30), lambda _address: True)
        async with _served(gate, _Answering, tls) as address:
            name = "localhost" if has_tls else None
            reader, writer = await asyncio.open_connection(*address, ssl=context, server_hostname=name)
            for size in [1, 4_000, 5_000, 262_144, 262_145, 1_000_000, *range(300_000, 300_040)]:
                writer.write(b"%d\n" % size)
                assert len(await asyncio.wait_for(reader.readexactly(size), 20)) == size
            writer.transport.abort()

    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(main())


@asynccontextmanager
async def _served(
    gate: ConnectionLimiter, protocol: Callable[[], asyncio.Protocol], tls: ServerTls | None = None
) -> AsyncIterator[Any]:
    """Run a node with one port and its front end; yield the address of the port."""
    listening = socket.create_server(("127.0.0.1", 0))
    listening.setblocking(False)
    address = listening.getsockname()
    port = RelayedPort(gate, lambda _slot: protocol(), [listening], lambda: None, is_tls=tls is not None)
    link, program = Link({0: port}), FrontEnd(tls)
    ours, theirs = socket.socketpair()
    await asyncio.get_running_loop().create_connection(lambda: link.channel, sock=ours)
    await program.start(theirs, [[0, "rpc", [listening.detach()], tls is not None]])
    try:
        yield address
    finally:
        link.channel.close()
        await program.ended.wait()
        await program.finish()
        gate.close()
