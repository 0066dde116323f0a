"""What the simulator and the code under test want of each other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from tests.simulation.host import Host
    from tests.simulation.journal import WatchedJournal
    from tests.simulation.run import Simulation

__all__ = ["Application", "JudgeNeedsPageError", "Replica", "Subject"]


class JudgeNeedsPageError(Exception):
    """A judge wants to see a body whose page is damaged, which the code under test does not need."""


class Replica(Protocol):
    """One life of the code under test. The checkers read its Raft state through the properties."""

    journal: WatchedJournal

    @property
    def term(self) -> int: ...

    @property
    def is_leader(self) -> bool: ...

    @property
    def commit_index(self) -> int: ...

    def kept(self) -> tuple[int, int] | None:
        """Index of the latest snapshot (0 without one), and of what is applied; None if the log is not kept on a disk."""

    @property
    def members(self) -> list[str]:
        """Ids of the voters as this node counts them, its own included, sorted."""

    @property
    def recovering(self) -> bool:
        """Whether the process knows that it lacks what it held in an earlier life."""

    def tick(self) -> None:
        """Time has passed."""

    def step(self) -> None:
        """Input has arrived since the last step or tick."""

    def propose(self, command: bytes) -> None: ...

    def change_members(self, add: bool, member: str) -> None:
        """Ask this node to propose the change, whether or not it is wise."""

    def admit(self, member: str) -> None:
        """Ask this node to let `member` learn and then to add it; to be repeated until that is done."""

    def transfer(self, member: str | None) -> None:
        """Ask this node to give its leadership away."""

    def take_snapshot(self) -> None: ...

    def digest(self) -> bytes:
        """Return a digest of the whole application state."""

    def stop(self) -> None: ...


class Subject(Protocol):
    """The kind of replica a run is about."""

    name: str
    tick_s: float
    shared_connections: bool
    """Whether one connection serves a pair in both directions (see network.py)."""
    fail_stop: bool
    """Whether an exception out of the replica is a violation (else the process logs it and goes on)."""
    retries: bool
    """Whether a command may be in the log more than once."""
    wants_steps: bool
    """Whether `Replica.step` is to be called after input."""

    def forgets(self, *, power: bool) -> bool:
        """Whether a process that dies so takes its log with it."""

    def world(self, simulation: Simulation) -> AbstractContextManager[None]:
        """What has to be replaced in the modules under test for the length of a run."""

    def begin_again(self) -> None:
        """All data of the cluster is lost, and rightly so: forget what clients were told."""

    def check_end(self, simulation: Simulation) -> None:
        """Report what only this subject can tell once all has settled."""

    def start(self, host: Host, peers: Sequence[str], rng: random.Random, *, joining: bool) -> Replica:
        """Begin a process on `host`; `peers` are the members it is told of, and `joining` whether it is to become one."""


class Application:
    """What the replicated commands do: a chain of digests, so equal values mean equal histories."""

    def __init__(self) -> None:
        self.index = 0
        self.digest = b""
