"""The measured systems: three server processes each."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Final

from tests.benchmarks.native.rows import Protocol, Row, Via

NODES: Final = 3


@dataclass(frozen=True, slots=True)
class Settings:
    """The options of the systems.

    Attributes:
        node_options: options of each node of lmqcluster, by their names in its configuration.
        nats_server: the program, if JetStream is measured.
    """

    node_options: Mapping[str, str] = field(default_factory=dict)
    nats_server: str = ""


class Servers(ABC):
    """A queue system of three processes, with its data in a temporary directory."""

    name: ClassVar[str]
    protocols: ClassVar[Mapping[Protocol, str]]
    """The generator's name for each protocol that this system has."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    def has(self, row: Row) -> bool:
        """Return whether a row is measured on this system."""
        return row.protocol in self.protocols

    @abstractmethod
    def start(self) -> None:
        """Start the servers and wait until they are ready."""

    @abstractmethod
    def stop(self) -> None:
        """Kill the servers and remove their data."""

    @abstractmethod
    def description(self) -> str:
        """Return the version and the state of a message when its push is acknowledged."""

    @abstractmethod
    def processes(self) -> Mapping[str, int]:
        """Return the process ids by name. The servers come first."""

    @abstractmethod
    def leader(self, queue: str) -> str:
        """Return the name of the server that leads a queue."""

    @abstractmethod
    def address(self, server: str, protocol: Protocol) -> str:
        """Return the address of a server for clients."""

    @abstractmethod
    def create(self, queue: str, row: Row) -> None:
        """Create a queue that suits a row."""

    @abstractmethod
    def stored(self, queue: str) -> int:
        """Return the number of messages in a queue."""

    def targets(self, row: Row, queues: Sequence[str]) -> list[tuple[str, str]]:
        """Return the addresses and queues that the connections of a row take in turn."""
        servers = list(self.processes())[:NODES]
        found = []
        for place, queue in enumerate(queues):
            leader = servers.index(self.leader(queue))
            # Successive connections use different nodes whatever the number of queues.
            turns = [(leader + place + turn) % NODES for turn in range(NODES)]
            chosen = [leader] if row.via is Via.LEADER else turns
            found.append([(self.address(servers[one], row.protocol), queue) for one in chosen])
        return [one for turn in zip(*found, strict=True) for one in turn]
