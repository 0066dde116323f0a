"""lmqcluster: three nodes as users start them, `AsyncClient` for MessagePack-RPC, bare sockets for HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import importlib.metadata
import json
import operator
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Final

from lmqcluster import AsyncClient
from tests.integration.cluster import Cluster, NodeProcess

from .cases import BATCHES_IN_FLIGHT, HTTP_CONNECTIONS, IN_FLIGHT, Case, Mode, Via
from .http_connection import HttpConnection, post
from .system import Link, LostMessagesError, Message, Receiver, System, Tally

NODES: Final = 3
PULL_TIMEOUT_S: Final = 30
CONNECTIONS: Final = {Mode.HTTP: HTTP_CONNECTIONS, Mode.HTTP_BATCHED: BATCHES_IN_FLIGHT}


class LmqCluster(System):
    """Three ``lmq start`` processes."""

    name = "lmqcluster"
    modes = frozenset(Mode)
    note = (
        "lmqcluster: push, pull and done are separate calls, answered when a majority has agreed; the client sends calls of "
        "one turn of the event loop together. pull + done is pull_many(256) and done of each. HTTP batches are JSON."
    )

    mode = "disk"
    """The durability mode of the nodes."""

    def __init__(self) -> None:
        self._cluster: Cluster | None = None
        self._clients: dict[NodeProcess, AsyncClient] = {}

    async def start(self) -> None:
        """Start three nodes and connect to each."""
        self._cluster = cluster = Cluster(NODES, arguments=("--durability", self.mode))
        await asyncio.to_thread(cluster.start)
        for node in cluster:
            # Only one address, so that the client stays with this node.
            self._clients[node] = await AsyncClient(node.rpc).__aenter__()

    async def stop(self) -> None:
        """Stop the nodes and remove their data."""
        for client in self._clients.values():
            await client.close(0)
        self._clients = {}
        if self._cluster is not None:
            await asyncio.to_thread(self._cluster.stop)

    def version(self) -> str:
        """Return the version of the package."""
        return importlib.metadata.version("lmqcluster")

    def durability(self) -> str:
        """Return the meaning of an acknowledged push: the configured mode, as a node reports it."""
        assert self._cluster is not None
        mode = self._cluster[0].get_json("/v1/cluster")["durability"]
        meaning = {
            "memory": "in memory on a majority",
            "process": "written on a majority",
            "disk": "fsynced on a majority",
        }
        return f"durability {mode}: {meaning.get(mode, 'see its documentation')}"

    @contextlib.asynccontextmanager
    async def queue(self, name: str, case: Case) -> AsyncIterator[Sequence[Link]]:
        """Yield a queue, which a first push creates."""
        cluster = self._cluster
        assert cluster is not None
        leader = await asyncio.to_thread(cluster.leader)
        others = [node for node in cluster if node is not leader]
        nodes = {Via.LEADER: [leader], Via.FOLLOWER: others[:1], Via.ALL: [leader, *others]}[case.via]
        async with contextlib.AsyncExitStack() as stack:
            links = [_rpc_link(self._clients[node], name) for node in nodes]
            if case.mode in CONNECTIONS:
                links = [
                    await _http_link(stack, node, link, name)
                    for node, link in zip(nodes, links, strict=True)
                    for _ in range(CONNECTIONS[case.mode])
                ]
            yield links
        left = (await asyncio.to_thread(leader.get_json, f"/v1/queues/{name}"))["size"]
        if left:
            raise LostMessagesError(f"lmqcluster: queue {name} has {left} messages after all were answered")
        await self._clients[leader].delete(name)


def _rpc_link(client: AsyncClient, name: str) -> Link:
    pull = functools.partial(client.pull, name, PULL_TIMEOUT_S)

    async def pull_many(count: int) -> list[Message]:
        return await client.pull_many(name, count, PULL_TIMEOUT_S)

    def done(message: Message) -> asyncio.Future[bool]:
        return client.done(name, message.id)

    def done_many(messages: list[Message]) -> asyncio.Future[list[bool]]:
        return client.done_many(name, [message.id for message in messages])

    async def consume(tally: Tally) -> None:
        answers: list[asyncio.Future[bool]] = []
        while claimed := tally.reserve(IN_FLIGHT):
            messages = await pull_many(claimed)
            tally.give_back(claimed - len(messages))
            for answer in answers:
                await answer
            answers = [done(message) for message in messages]
            for message in messages:
                tally.add(message.content)
        for answer in answers:
            await answer

    @contextlib.asynccontextmanager
    async def receiver() -> AsyncIterator[Receiver]:
        # Operations of one connection take effect in the order sent, so a pong shows that the earlier pull was
        # received.
        yield Receiver(pull, client.ping)

    return Link(
        push=functools.partial(client.push, name),
        pull=pull,
        done=done,
        content_of=operator.attrgetter("content"),
        consume=consume,
        receiver=receiver,
        push_many=functools.partial(client.push_many, name),
        pull_many=pull_many,
        done_many=done_many,
    )


async def _http_link(stack: contextlib.AsyncExitStack, node: NodeProcess, rpc: Link, name: str) -> Link:
    """Yield one HTTP connection that pushes; its messages are pulled over `rpc`."""
    connection = await HttpConnection.open(node.http)
    stack.callback(connection.close)

    def push(content: bytes) -> asyncio.Future[bytes]:
        return connection.request(post(node.http, f"/messages/{name}", "text/plain", content))

    def push_many(contents: list[bytes]) -> asyncio.Future[bytes]:
        body = json.dumps({"messages": [{"content": content.decode("ascii")} for content in contents]}).encode("ascii")
        return connection.request(post(node.http, f"/v1/queues/{name}/messages", "application/json", body))

    return replace(rpc, push=push, push_many=push_many)


class LmqInMemory(LmqCluster):
    """The same with nothing on disk, to show the cost of durability."""

    name = "lmqcluster-memory"
    mode = "memory"
