"""NATS JetStream: three servers, streams of three replicas in files, and nats-py."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import importlib.metadata
import importlib.util
import operator
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Final

from .cases import IN_FLIGHT, Case, Mode, Via
from .native.jetstream_servers import JetStreamServers
from .native.rows import Protocol
from .native.servers import Settings
from .processes import eventually, find_program
from .system import Link, LostMessagesError, Message, Receiver, System, Tally

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.js import JetStreamContext
    from nats.js.api import ConsumerInfo, StreamInfo

NODES: Final = 3
STREAM: Final = "bench"
TIMEOUT_S: Final = 30.0
"""Timeout of one request, which is reached only if something hangs."""
NO_LEADER_TIMEOUT_S: Final = 1.0
"""Timeout of a request that is unanswered during an election, and is repeated."""
EMPTY_WITHIN_S: Final = 10.0
PLACEMENT_TRIES: Final = 30


class JetStream(System):
    """Three `nats-server` processes."""

    name = "JetStream"
    modes = frozenset({Mode.PIPELINED, Mode.CONSUME, Mode.BATCHED, Mode.ONE_AT_A_TIME, Mode.WAKE_UP})
    note = (
        "JetStream: push is publish awaiting the PubAck, pull is fetch(1), done is ack_sync; pull_many is fetch(100); "
        "pull + done is fetch(256) and ack_sync of each, so that every acknowledgement is confirmed, as ours are."
    )

    def __init__(self) -> None:
        self.servers: JetStreamServers | None = None
        self._clients: list[Client] = []
        self._links: list[Link] = []

    @classmethod
    def missing(cls) -> str | None:
        """Return the line about installing it."""
        if find_program("nats-server") is None:
            return "JetStream is left out: nats-server is not installed (apt-get install nats-server)"
        if importlib.util.find_spec("nats") is None:
            return "JetStream is left out: nats-py is not installed (pip install nats-py)"
        return None

    async def start(self) -> None:
        """Start three servers and connect to each."""
        import nats

        program = find_program("nats-server")
        assert program is not None
        self.servers = JetStreamServers(Settings(nats_server=program))
        await asyncio.to_thread(self.servers.start)
        self._clients = [
            await nats.connect(
                f"nats://{self.servers.address(name, Protocol.OWN)}", allow_reconnect=False, pending_size=1 << 28
            )
            for name in self.servers.servers
        ]
        await self._create()
        self._links = [await _link(client) for client in self._clients]

    async def stop(self) -> None:
        """Stop the servers and remove their files."""
        for client in self._clients:
            await client.close()
        self._clients = []
        if self.servers is not None:
            self.servers.stop()

    def version(self) -> str:
        """Return the versions of nats-server and nats-py."""
        program = find_program("nats-server")
        assert program is not None
        output = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
        return f"{output.split()[-1].lstrip('v')}, nats-py {importlib.metadata.version('nats-py')}"

    def durability(self) -> str:
        """Return the meaning of a PubAck."""
        return "R3, file storage, written on a majority, synced every 2 minutes"

    @contextlib.asynccontextmanager
    async def queue(self, name: str, case: Case) -> AsyncIterator[Sequence[Link]]:
        """Yield the one stream, which every round empties: creating a new one would take longer than the round."""
        leader = await self._stream_leader()
        first = leader if case.via is not Via.FOLLOWER else (leader + 1) % NODES
        count = NODES if case.via is Via.ALL else 1
        yield [self._links[(first + i) % NODES] for i in range(count)]

        async def empty() -> bool:
            return (await self._admin.stream_info(STREAM)).state.messages == 0

        try:
            await eventually(empty, "JetStream: the stream empty", EMPTY_WITHIN_S)
        except TimeoutError as exc:
            raise LostMessagesError(str(exc)) from exc

    @property
    def _admin(self) -> JetStreamContext:
        return self._clients[0].jetstream(timeout=TIMEOUT_S)

    async def _stream_leader(self) -> int:
        """Return the index of the server that leads the stream, once an election has ended."""
        return await self._leader(lambda admin: admin.stream_info(STREAM), "the stream")

    async def _leader(self, info: Callable[[JetStreamContext], Awaitable[StreamInfo | ConsumerInfo]], what: str) -> int:
        admin = self._clients[0].jetstream(timeout=NO_LEADER_TIMEOUT_S)

        async def leader() -> str | None:
            try:
                cluster = (await info(admin)).cluster
            except TimeoutError:
                return None  # Without a leader no server answers.
            return cluster.leader if cluster is not None else None

        name = await eventually(leader, f"JetStream: a leader of {what}")
        return int(name.removeprefix("n")) - 1

    async def _create(self) -> None:
        """Create the stream and its consumer, both led by the same server.

        The servers choose the leaders; the stream's is asked to step down until it is the consumer's.
        """
        from nats.js.api import AckPolicy, ConsumerConfig, RetentionPolicy, StorageType

        await self._admin.add_stream(
            name=STREAM,
            subjects=[STREAM],
            retention=RetentionPolicy.WORK_QUEUE,
            storage=StorageType.FILE,
            num_replicas=NODES,
        )
        await self._admin.add_consumer(
            STREAM,
            ConsumerConfig(
                durable_name=STREAM,
                ack_policy=AckPolicy.EXPLICIT,
                ack_wait=300,
                max_ack_pending=1_000_000,
                max_waiting=10_000,
            ),
        )
        wanted = await self._leader(lambda admin: admin.consumer_info(STREAM, STREAM), "the consumer")
        for _ in range(PLACEMENT_TRIES):
            if await self._stream_leader() == wanted:
                return
            with contextlib.suppress(TimeoutError):  # The old leader may have stepped down before it answered.
                await self._clients[0].request(f"$JS.API.STREAM.LEADER.STEPDOWN.{STREAM}", timeout=NO_LEADER_TIMEOUT_S)
        raise TimeoutError(f"JetStream: stream and consumer did not get one leader in {PLACEMENT_TRIES} elections")


async def _link(client: Client) -> Link:
    context = client.jetstream(timeout=TIMEOUT_S)

    async def subscription() -> JetStreamContext.PullSubscription:
        return await context.pull_subscribe_bind(
            durable=STREAM, stream=STREAM, pending_msgs_limit=-1, pending_bytes_limit=-1
        )

    # nats-py lets concurrent fetches on one subscription take each other's messages, after which one of them waits in
    # vain. So each fetch in flight has a separate subscription; they are created before the clock starts.
    idle = [await subscription() for _ in range(IN_FLIGHT)]

    async def pull_many(count: int) -> list[Message]:
        mine = idle.pop()
        messages: list[Message] = await mine.fetch(count, TIMEOUT_S)
        idle.append(mine)
        return messages

    async def pull() -> Message:
        return (await pull_many(1))[0]

    async def consume(tally: Tally) -> None:
        while claimed := tally.reserve(IN_FLIGHT):
            messages = await pull_many(claimed)
            tally.give_back(claimed - len(messages))
            await asyncio.gather(*(message.ack_sync(TIMEOUT_S) for message in messages))
            for message in messages:
                tally.add(message.data)

    @contextlib.asynccontextmanager
    async def receiver() -> AsyncIterator[Receiver]:
        yield Receiver(pull, client.flush)

    return Link(
        push=functools.partial(context.publish, STREAM),
        pull=pull,
        done=lambda message: message.ack_sync(TIMEOUT_S),
        content_of=operator.attrgetter("data"),
        consume=consume,
        receiver=receiver,
        pull_many=pull_many,
    )
