"""The brokers on which tasks of Celery and dramatiq are measured. Each is a context manager whose servers run within
the block.
"""

from __future__ import annotations

import asyncio
import importlib.util
import socket
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self

from tests.integration.cluster import Cluster, ports

from .processes import ServerProcess, eventually, find_program
from .rabbitmq import RabbitMQ

__all__ = ["BROKERS", "TaskBroker"]


class TaskBroker(ABC):
    """Servers, and their names for an application.

    Attributes:
        name: the name in tables.
        libraries: the libraries that can use it.
        settings: settings of a Celery application.
    """

    name: ClassVar[str]
    libraries: ClassVar[frozenset[str]] = frozenset({"celery", "dramatiq"})
    settings: ClassVar[Mapping[str, Any]] = {}

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @classmethod
    def missing(cls) -> str | None:
        """Return why it cannot run here; None if it can."""
        return None

    @property
    @abstractmethod
    def url(self) -> str:
        """Return the URL for an application."""

    @property
    @abstractmethod
    def pids(self) -> list[int]:
        """Return the process ids of its servers, each of which leads a session."""

    @abstractmethod
    def __enter__(self) -> Self:
        """Start the servers."""

    @abstractmethod
    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop the servers."""


class LmqTasks(TaskBroker):
    """Three nodes."""

    name = "lmqcluster, three nodes, synced"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._cluster = Cluster(3, directory=folder)

    @property
    def url(self) -> str:
        """Return the URL. As RabbitMQ's queue, ours has its leader at the first named node."""
        leader = self._cluster.leader().rpc
        others = [address for address in self._cluster.rpc_addresses if address != leader]
        return f"lmq://{','.join([leader, *others])}/bench"

    @property
    def pids(self) -> list[int]:
        """Return the process ids (see `TaskBroker`)."""
        return [node.pid for node in self._cluster if node.pid is not None]

    def __enter__(self) -> Self:
        self._cluster.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._cluster.__exit__(kind, value, trace)


class RabbitTasks(TaskBroker):
    """Three nodes with quorum queues, and publisher confirms."""

    name = "RabbitMQ, three nodes, quorum queues"
    settings: ClassVar[Mapping[str, Any]] = {
        "task_default_queue_type": "quorum",
        "broker_transport_options": {"confirm_publish": True},
    }

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._rabbit = RabbitMQ()
        self._ports: list[int] = []

    @classmethod
    def missing(cls) -> str | None:
        """Return the reason (see `TaskBroker`)."""
        if importlib.util.find_spec("pika") is None:
            return "RabbitMQ is left out: pika is not installed (pip install pika)"
        return RabbitMQ.missing()

    @property
    def url(self) -> str:
        """Return the URL (see `TaskBroker`)."""
        return ";".join(f"amqp://guest:guest@127.0.0.1:{port}//" for port in self._ports)

    @property
    def pids(self) -> list[int]:
        """Return the process ids (see `TaskBroker`)."""
        return self._rabbit.pids

    def __enter__(self) -> Self:
        self._ports = asyncio.run(self._rabbit.start_servers())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        asyncio.run(self._rabbit.stop())


class RedisTasks(TaskBroker):
    """One server, whose log is synced with every write."""

    name = "Redis, one server, appendfsync always"
    policy: ClassVar[str] = "always"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._port = ports.take()
        self._server: ServerProcess | None = None

    @classmethod
    def missing(cls) -> str | None:
        """Return the reason (see `TaskBroker`)."""
        if find_program("redis-server") is None:
            return "Redis is left out: redis-server is not installed (apt-get install redis-server)"
        return None

    @property
    def url(self) -> str:
        """Return the URL (see `TaskBroker`)."""
        return f"redis://127.0.0.1:{self._port}/0"

    @property
    def pids(self) -> list[int]:
        """Return the process ids (see `TaskBroker`)."""
        return [] if self._server is None else [self._server.pid]

    def __enter__(self) -> Self:
        program = find_program("redis-server")
        assert program is not None
        command = [program, "--port", str(self._port), "--bind", "127.0.0.1", "--dir", str(self._folder)]
        command += ["--appendonly", "yes", "--appendfsync", self.policy, "--save", ""]
        self._server = ServerProcess("redis", command, self._folder).start()
        asyncio.run(eventually(self._listens, "Redis"))
        return self

    async def _listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self._port)) == 0

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._server is not None:
            self._server.stop()


class LooseRedisTasks(RedisTasks):
    """One server, whose log is synced once a second."""

    name = "Redis, one server, appendfsync everysec"
    policy = "everysec"


BROKERS: dict[str, type[TaskBroker]] = {
    "lmq": LmqTasks,
    "rabbitmq": RabbitTasks,
    "redis": RedisTasks,
    "redis-everysec": LooseRedisTasks,
}
