"""A connection whose node has too many pending commands: it is not read until they are processed."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import msgpack

from lmqcluster.core import Role
from lmqcluster.node.access.access import Principal
from lmqcluster.protocols.msgpack_rpc.connection import port_context
from lmqcluster.protocols.msgpack_rpc.connection.port_context import PortContext
from lmqcluster.protocols.msgpack_rpc.connection.stream import Stream


class Proposer:
    """Pending commands of a node."""

    def __init__(self) -> None:
        self.full = False
        self.asked = asyncio.Event()

    def is_full(self) -> bool:
        self.asked.set()
        return self.full


class Transport(asyncio.Transport):
    """A transport that notes whether it is read."""

    def __init__(self) -> None:
        super().__init__()
        self.is_read = True

    def pause_reading(self) -> None:
        self.is_read = False

    def resume_reading(self) -> None:
        self.is_read = True


class Requests(Stream):
    """A connection that notes its requests."""

    def __init__(self, port: PortContext) -> None:
        place: Any = SimpleNamespace(is_known=True, release=lambda: None)
        super().__init__(port, place)
        self.principal = Principal("client", Role.WRITE, b".*")
        self.taken: list[Any] = []
        self.now = Transport()
        self.connection_made(self.now)

    def dispatch(self, message: Any) -> None:
        self.taken.append(message)


def make_port() -> tuple[Proposer, PortContext]:
    proposer = Proposer()
    node: Any = SimpleNamespace(service=SimpleNamespace(sender=SimpleNamespace(proposer=proposer)))
    return proposer, PortContext(node)


async def room(port: PortContext) -> None:
    """Wait until there is room and the clients before have gone on."""
    there = asyncio.Event()
    port.wait_for_room(there.set)
    await asyncio.wait_for(there.wait(), 5)
    await asyncio.sleep(0)


def test_a_client_is_read_again_once_there_is_room() -> None:
    async def main() -> None:
        proposer, port = make_port()
        one, other = Requests(port), Requests(port)
        proposer.full = True
        for connection in (one, other):
            connection.data_received(msgpack.packb(1))
            assert (connection.taken, connection.now.is_read) == ([1], False)
            # These had left the client before.
            connection.data_received(msgpack.packb(2))
            assert connection.taken == [1]
        proposer.asked.clear()
        await asyncio.wait_for(proposer.asked.wait(), 5)
        assert not one.now.is_read
        proposer.full = False
        await room(port)
        assert [one.taken, other.taken] == [[1, 2], [1, 2]]
        assert one.now.is_read
        assert other.now.is_read
        assert not one.has_rest

    asyncio.run(main())


def test_room_means_nothing_to_a_client_that_is_gone() -> None:
    async def main() -> None:
        proposer, port = make_port()
        connection = Requests(port)
        proposer.full = True
        connection.data_received(msgpack.packb(1))
        connection.data_received(msgpack.packb(2))
        connection.connection_lost(None)
        proposer.full = False
        await room(port)
        assert (connection.taken, connection.now.is_read) == ([1], False)

    asyncio.run(main())


def test_clients_share_the_pace_of_large_requests() -> None:
    async def main() -> None:
        _proposer, port = make_port()
        first = port.pace(port_context.VALUES_PER_S, 0.0)
        second = port.pace(port_context.VALUES_PER_S, 0.0)
        busy = port.pace(1, 1.0)
        assert 0.9 < first <= 1 < second <= 2
        assert busy > second + port_context.PACE - 0.5

    asyncio.run(main())
