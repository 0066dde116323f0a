"""RabbitMQ: three nodes, quorum queues of three members, and aio-pika with publisher confirms.

The nodes are separate from any RabbitMQ installed as a service: own epmd, ports, cookie, configuration and data, all on
loopback and below one temporary directory.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import importlib.metadata
import importlib.util
import operator
import os
import secrets
import shutil
import socket
import subprocess
import tempfile
from collections.abc import AsyncIterator, Awaitable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.integration.cluster import ports

from .cases import IN_FLIGHT, Case, Mode, Via
from .processes import START_S, ServerProcess, eventually, find_program
from .system import Link, LostMessagesError, Message, Receiver, System, Tally

if TYPE_CHECKING:
    from aio_pika.abc import AbstractChannel, AbstractConnection, AbstractIncomingMessage, AbstractQueue
    from aiormq.abc import FieldTable

NODES: Final = 3
QUEUE: Final = "bench"
INSTALL: Final = "apt-get install rabbitmq-server"


class RabbitMQ(System):
    """Three Erlang nodes and a separate epmd."""

    name = "RabbitMQ"
    modes = frozenset({Mode.PIPELINED, Mode.CONSUME, Mode.ONE_AT_A_TIME, Mode.WAKE_UP})
    note = (
        "RabbitMQ: push is publish awaiting the confirm, pull is basic.get on one of 256 channels (a channel serves one get "
        "at a time), done is basic.ack, which AMQP does not confirm: a get behind the last ack of each channel does; "
        "pull + done is basic.consume with prefetch 256 and an ack for each message, with a passive declare behind every 256th, "
        "whose answer shows that the queue has processed them."
    )

    def __init__(self) -> None:
        self._servers: list[ServerProcess] = []
        self._connections: list[AbstractConnection] = []
        self._admin: AbstractChannel | None = None
        self._links: list[Link] = []
        self._directory: Path | None = None
        self._environment: dict[str, str] = {}

    @classmethod
    def missing(cls) -> str | None:
        """Return the line about installing it."""
        if find_program("rabbitmq-server") is None:
            return f"RabbitMQ is left out: rabbitmq-server is not installed ({INSTALL})"
        if importlib.util.find_spec("aio_pika") is None:
            return "RabbitMQ is left out: aio-pika is not installed (pip install aio-pika)"
        return None

    async def start(self) -> None:
        """Start the servers, and connect to each."""
        import aio_pika

        amqp_ports = await self.start_servers()
        self._connections = [await aio_pika.connect(f"amqp://guest:guest@127.0.0.1:{port}/") for port in amqp_ports]
        await self._open()

    async def start_servers(self) -> list[int]:
        """Start epmd and three nodes, which find each other; return the nodes' ports."""
        self._directory = Path(tempfile.mkdtemp(prefix="lmqcluster-bench-rabbitmq-"))
        epmd_port = str(ports.take())
        self._environment = self._common_environment(epmd_port)
        epmd = find_program("epmd")
        if epmd is None:
            raise RuntimeError(f"RabbitMQ is installed without Erlang's epmd ({INSTALL})")
        epmd_command = [epmd, "-port", epmd_port, "-address", "127.0.0.1"]
        self._servers.append(ServerProcess("epmd", epmd_command, self._directory, self._environment).start())
        await self._listening(int(epmd_port))
        amqp_ports = [ports.take() for _ in range(NODES)]
        for i, port in enumerate(amqp_ports):
            environment = self._node_environment(i, port)
            self._servers.append(
                ServerProcess(f"rabbit{i + 1}", [_script("rabbitmq-server")], self._directory, environment).start()
            )
        for port in amqp_ports:
            await self._listening(port)
        await self._control("await_online_nodes", str(NODES), "--timeout", str(int(START_S)))
        return amqp_ports

    def _common_environment(self, epmd_port: str) -> dict[str, str]:
        """Return the environment that nodes and the command-line tool share."""
        assert self._directory is not None
        cookie = self._directory / ".erlang.cookie"
        cookie.write_text(secrets.token_hex(20))
        cookie.chmod(0o400)
        empty = self._directory / "rabbitmq-env.conf"
        empty.write_text("")
        plugins = self._directory / "enabled_plugins"
        plugins.write_text("[].\n")
        return {
            "HOME": str(self._directory),
            "RUNNING_UNDER_SYSTEMD": "true",  # The script then becomes the server instead of waiting for it.
            "ERL_EPMD_PORT": epmd_port,
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_CONF_ENV_FILE": str(empty),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(plugins),
            "RABBITMQ_MNESIA_BASE": str(self._directory / "mnesia"),
            "RABBITMQ_LOG_BASE": str(self._directory / "log"),
        }

    def _node_environment(self, index: int, amqp_port: int) -> dict[str, str]:
        """Return the environment of one node, which is its whole configuration."""
        assert self._directory is not None
        config = self._directory / f"rabbit{index + 1}.conf"
        members = [f"cluster_formation.classic_config.nodes.{i + 1} = {_node_name(i)}" for i in range(NODES)]
        lines = [
            f"listeners.tcp.1 = 127.0.0.1:{amqp_port}",
            "cluster_formation.peer_discovery_backend = classic_config",
            *members,
            "log.console = true",
            "log.console.level = warning",
            "log.file = false",
        ]
        config.write_text("\n".join([*lines, ""]))
        return {
            **self._environment,
            "RABBITMQ_NODENAME": _node_name(index),
            "RABBITMQ_NODE_PORT": str(amqp_port),
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_DIST_PORT": str(ports.take()),
            "RABBITMQ_CONFIG_FILE": str(config),
            "RABBITMQ_PID_FILE": str(self._directory / f"rabbit{index + 1}.pid"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
        }

    async def _listening(self, port: int) -> None:
        """Wait until a port accepts connections, or a server has ended."""

        async def connects() -> bool:
            for server in self._servers:
                server.check_running()
            with socket.socket() as probe:
                return probe.connect_ex(("127.0.0.1", port)) == 0

        await eventually(connects, f"RabbitMQ: port {port} open")

    async def _control(self, *arguments: str) -> None:
        """Run ``rabbitmqctl`` against the first node.

        Raises:
            RuntimeError: it failed; the text has its output.
        """
        command = [_script("rabbitmqctl"), "--node", _node_name(0), *arguments]
        process = await asyncio.create_subprocess_exec(
            *command,
            env={**os.environ, **self._environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        output, _ = await process.communicate()
        if process.returncode != 0:
            raise RuntimeError(
                f"{' '.join(command)} ended with {process.returncode}: {output.decode(errors='replace')}"
            )

    @property
    def pids(self) -> list[int]:
        """Return the started processes, each of which leads a session."""
        return [server.pid for server in self._servers]

    async def stop(self) -> None:
        """Stop nodes and epmd and remove their files."""
        for connection in self._connections:
            await connection.close()
        self._connections = []
        for server in reversed(self._servers):
            server.stop()
        self._servers = []
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)

    def version(self) -> str:
        """Return the versions of RabbitMQ, of Erlang's runtime, and of aio-pika."""
        # The server reports its version on every connection.
        properties = self._connections[0].transport.connection.server_properties
        client = f"aio-pika {importlib.metadata.version('aio-pika')}"
        return f"{_text(properties['version'])}, {_text(properties['platform'])}, {client}"

    def durability(self) -> str:
        """Return the meaning of a confirm."""
        return "quorum queue of 3, fsynced on a majority"

    @contextlib.asynccontextmanager
    async def queue(self, name: str, case: Case) -> AsyncIterator[Sequence[Link]]:
        """Yield the one queue, which every round empties: reopening all channels would take longer than the round.

        Its leader is at the node where it was declared: the first.
        """
        first = 1 if case.via is Via.FOLLOWER else 0
        count = NODES if case.via is Via.ALL else 1
        yield self._links[first : first + count]
        assert self._admin is not None
        declared = await self._admin.declare_queue(QUEUE, passive=True)
        if declared.declaration_result.message_count:
            raise LostMessagesError(f"RabbitMQ: {declared.declaration_result.message_count} messages are left")

    async def _open(self) -> None:
        """Declare the queue and open the channels of every connection."""
        self._admin = await self._connections[0].channel()
        arguments: FieldTable = {"x-queue-type": "quorum", "x-quorum-initial-group-size": NODES}
        await self._admin.declare_queue(QUEUE, durable=True, arguments=arguments)
        self._links = [await _link(connection) for connection in self._connections]


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _node_name(index: int) -> str:
    return f"rabbit{index + 1}@localhost"


def _script(name: str) -> str:
    """Return the path of RabbitMQ's own script. Debian's wrapper requires the user and the directory of the service."""
    found = find_program(name)
    assert found is not None
    behind_wrapper = Path(found).resolve().parent / name
    return str(behind_wrapper) if behind_wrapper.exists() else found


async def _link(connection: AbstractConnection) -> Link:
    import aio_pika

    async def queue() -> AbstractQueue:
        channel = await connection.channel(publisher_confirms=False)
        await channel.set_qos(prefetch_count=IN_FLIGHT)
        return await channel.get_queue(QUEUE)

    exchange = (await connection.channel(publisher_confirms=True)).default_exchange
    # A channel serves one get at a time, so every get in flight has a separate channel.
    getters = await asyncio.gather(*(queue() for _ in range(IN_FLIGHT)))
    idle = list(getters)
    consumed = await queue()

    def push(content: bytes) -> Awaitable[object]:
        message = aio_pika.Message(content, delivery_mode=aio_pika.DeliveryMode.PERSISTENT)
        return exchange.publish(message, QUEUE)

    async def pull() -> Message:
        getter = idle.pop()
        message = await getter.get(timeout=None)
        idle.append(getter)
        return message

    async def settle() -> None:
        await asyncio.gather(*(_barrier(getter) for getter in getters))

    return Link(
        push=push,
        pull=pull,
        done=operator.methodcaller("ack"),
        content_of=operator.attrgetter("body"),
        consume=functools.partial(_consume, consumed),
        receiver=functools.partial(_receiver, consumed),
        done_is_confirmed=False,
        settle=settle,
    )


async def _barrier(queue: AbstractQueue) -> None:
    """Return when the queue has seen every ack that this channel sent: it answers in order, and reports that it is
    empty.

    Raises:
        LostMessagesError: it is not empty.
    """
    if await queue.get(fail=False, timeout=None) is not None:
        raise LostMessagesError(f"RabbitMQ: queue {queue.name} has messages after all were taken")


async def _consume(queue: AbstractQueue, tally: Tally) -> None:
    count = 0

    async def take(message: AbstractIncomingMessage) -> None:
        nonlocal count
        await message.ack()
        count += 1
        if count % IN_FLIGHT == 0:
            # A channel's requests are executed in order.
            await queue.declare(timeout=None)
        tally.add(message.body)

    tag = await queue.consume(take)
    await tally.complete.wait()
    await _barrier(queue)
    await queue.cancel(tag)


@contextlib.asynccontextmanager
async def _receiver(queue: AbstractQueue) -> AsyncIterator[Receiver]:
    arrived: asyncio.Queue[AbstractIncomingMessage] = asyncio.Queue()
    tag = await queue.consume(arrived.put)
    yield Receiver(arrived.get)
    await _barrier(queue)
    await queue.cancel(tag)
