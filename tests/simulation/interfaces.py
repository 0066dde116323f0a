"""Interfaces between the simulator and the code under test."""

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
    """A judge needs a body whose page is damaged, which the code under test does not need."""


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
        """Return the indexes of the latest snapshot (0 without one) and of the last applied entry; None without a log
        on disk.
        """

    @property
    def members(self) -> list[str]:
        """Return the sorted ids of the voters that this node knows, its own included."""

    @property
    def recovering(self) -> bool:
        """Return whether the process knows that it lacks what it held in an earlier life."""

    def tick(self) -> None:
        """Handle the passage of time."""

    def step(self) -> None:
        """Handle the input that arrived since the last step or tick."""

    def propose(self, command: bytes) -> None: ...

    def change_members(self, add: bool, member: str) -> None:
        """Ask this node to propose the change, whether or not it is wise."""

    def admit(self, member: str) -> None:
        """Ask this node to make `member` a learner and then a voter; repeat until that is done."""

    def transfer(self, member: str | None) -> None:
        """Ask this node to transfer its leadership."""

    def take_snapshot(self) -> None: ...

    def digest(self) -> bytes:
        """Return a digest of the whole application state."""

    def stop(self) -> None: ...


class Subject(Protocol):
    """The kind of replica that a run tests."""

    name: str
    tick_s: float
    shared_connections: bool
    """True if one connection serves a pair in both directions (see network.py)."""
    fail_stop: bool
    """True if an exception of the replica is a violation (else the process logs it and continues)."""
    retries: bool
    """True if the log may contain a command more than once."""
    wants_steps: bool
    """True if `Replica.step` must be called after input."""

    def forgets(self, *, power: bool) -> bool:
        """Return whether a process that dies in this way loses its log."""

    def world(self, simulation: Simulation) -> AbstractContextManager[None]:
        """Return the replacements in the modules under test for the duration of a run."""

    def begin_again(self) -> None:
        """Forget the answers to clients, because all data of the cluster is legitimately lost."""

    def check_end(self, simulation: Simulation) -> None:
        """Report violations that only this subject can detect after the cluster has settled."""

    def start(self, host: Host, peers: Sequence[str], rng: random.Random, *, joining: bool) -> Replica:
        """Begin a process on `host`; `peers` are the members it knows, `joining` says whether it is to join them."""


class Application:
    """Executes the replicated commands as a chain of digests: equal values mean equal histories."""

    def __init__(self) -> None:
        self.index = 0
        self.digest = b""
