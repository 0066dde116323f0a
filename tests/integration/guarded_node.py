"""A node with both ports in this process, so that tests can inspect its tables, and tokens of every kind
for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import msgpack

from lmqcluster.node.access.tokens import create_token
from lmqcluster.node.config.config import NodeConfig
from lmqcluster.node.node import Node
from lmqcluster.protocols.http import LmqHttpPort
from lmqcluster.protocols.msgpack_rpc import RpcPort
from lmqcluster.wire.address import Address

from .cluster import ports

ADMIN = "a token from a file"


@dataclass
class Guarded:
    """The node and its clients."""

    node: Node
    http: LmqHttpPort
    rpc: RpcPort
    session: aiohttp.ClientSession
    _connections: list[AsyncRpc] = field(default_factory=list)

    async def ask(
        self, method: str, path: str, token: str | None, host: str = "127.0.0.1", **more: Any
    ) -> tuple[int, str, str]:
        """Send an HTTP request; return status, the ``www-authenticate`` header, and body or ``x-lmq-error``."""
        headers = {"authorization": f"Bearer {token}"} if token is not None else {}
        url = f"http://{host}:{self.http.port}{path}"
        async with self.session.request(method, url, headers=headers, **more) as answer:
            text = answer.headers.get("x-lmq-error") or (await answer.read()).decode()
            return answer.status, answer.headers.get("www-authenticate", ""), text

    async def connect(self, token: str | None = None, host: str = "127.0.0.1") -> AsyncRpc:
        """Return a MessagePack-RPC connection, with or without a token; it is closed with the node."""
        rpc = AsyncRpc(*await asyncio.open_connection(host, self.rpc.port))
        self._connections.append(rpc)
        if token is not None:
            assert await rpc.call("auth", token) == (None, b"ok")
        return rpc

    async def close(self) -> None:
        """Close the connections."""
        for rpc in self._connections:
            await rpc.close()

    async def token(
        self, name: str, role: str, queues: str = ".*", lifetime_s: float | None = None, principal: str | None = None
    ) -> str:
        """Create a token; return its secret."""
        return await create_token(self.node, name, role, queues, lifetime_s, principal)


@asynccontextmanager
async def guarded_node(
    folder: Path, *, host: str = "127.0.0.1", admin: str | None = ADMIN, **options: Any
) -> AsyncIterator[Guarded]:
    """Run a single node; `admin` is the token of ``admin_token_file``, if any.

    `options` are further options of the node.
    """
    raft = Address("127.0.0.1", ports.take())
    token = None if admin is None else admin.encode()
    config = NodeConfig(
        name="n1",
        data_dir=folder / "n1",
        raft=raft,
        http=None,
        rpc=Address(host, 1),
        durability="memory",
        admin_token=token,
        **options,
    )
    node = Node(config)
    await node.start()
    http, rpc = LmqHttpPort(node, host, 0), RpcPort(node, host, 0)
    try:
        await http.start()
        await rpc.start()
        await node.service.sender.barrier()
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=30)) as session:
            guarded = Guarded(node, http, rpc, session)
            yield guarded
            await guarded.close()
    finally:
        http.retire()
        rpc.retire()
        node.retire()
        await http.stop(1.0)
        await rpc.stop(1.0)
        await node.stop()


class AsyncRpc:
    """A MessagePack-RPC connection; answers arrive in the order of the requests."""

    def __init__(self, reader: Any, writer: Any) -> None:
        self._reader, self._writer = reader, writer
        self._unpacker = msgpack.Unpacker(raw=True)

    async def call(self, method: str, *arguments: Any) -> tuple[Any, Any]:
        """Send a request and return (error, result)."""
        self._writer.write(msgpack.packb([0, 1, method.encode(), list(arguments)], use_bin_type=False))
        while True:
            for _type, _msgid, error, result in self._unpacker:
                return error, result
            data = await self._reader.read(65536)
            if not data:
                raise EOFError("the node closed the connection")
            self._unpacker.feed(data)

    async def read_end(self) -> bytes:
        """Return everything received until the node closes the connection."""
        data: bytes = await self._reader.read()
        return data

    async def close(self) -> None:
        """Close the connection."""
        self._writer.close()
        with suppress(ConnectionError):
            await self._writer.wait_closed()
