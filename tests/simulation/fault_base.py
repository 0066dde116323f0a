"""Common base of all faults: where to strike, for how long, and which members to spare."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.network import IDLE_LIMIT_S

if TYPE_CHECKING:
    import random

    from tests.simulation.host import Host
    from tests.simulation.run import Simulation

__all__ = ["FaultBase"]


class FaultBase:
    """Draws faults from the run's seed.

    Attributes:
        is_over: no further fault may strike.
    """

    def __init__(self, simulation: Simulation, rng: random.Random) -> None:
        self._simulation = simulation
        self._clock = simulation.clock
        self._network = simulation.network
        self._hosts = simulation.hosts
        self._checkers = simulation.checkers
        self._profile = simulation.profile
        self._subject = simulation.subject
        self._rng = rng
        self.is_over = False

    def _duration(self) -> float:
        """Return a duration of about a second, sometimes long enough for elections and lost connections."""
        return min(self._rng.lognormvariate(0.2, 0.9), 10.0)

    def _two(self) -> tuple[str, str]:
        one, other = self._rng.sample(sorted(self._hosts), 2)
        return one, other

    def _notice(self) -> tuple[float, float]:
        return self._rng.choice([(0.0, 0.05), (0.0, IDLE_LIMIT_S)])

    def _leaders(self) -> list[Host]:
        return [host for host in self._hosts.values() if host.replica is not None and host.replica.is_leader]

    def _leader_or_any(self) -> str:
        """Return the leader in half of the cases, where faults reveal most, else any member."""
        leaders = [host.id for host in self._leaders()]
        if leaders and self._rng.random() < 0.5:
            return self._rng.choice(sorted(leaders))
        return self._rng.choice(sorted(self._hosts))

    def _settled_members(self) -> list[Host]:
        """Return the members if all running members agree on them; none during a change or without a leader.

        A cluster that is changing its members, or has only two, tolerates no failure; Raft does not promise that it
        does.
        """
        leaders = self._leaders()
        members = self._simulation.voters()
        names = [host.id for host in members]
        lists = [host.replica.members for host in members if host.replica is not None and not host.replica.recovering]
        return members if leaders and all(each == names for each in lists) else []

    @staticmethod
    def _weak(members: list[Host]) -> list[Host]:
        """Return the members that lack, or may lack, what they have acknowledged."""
        return [host for host in members if (host.lacking if host.replica is None else host.replica.recovering)]

    def _expendable(self) -> Host | None:
        """Return a running member that may forget all it holds while those that lack something remain a minority."""
        members = self._settled_members()
        # A stopped member will return, and it is not known yet whether it has forgotten.
        weak = {host.id for host in self._weak(members)}
        if not members or 2 * (len(weak) + 1) >= len(members):
            return None
        host = self._rng.choice(members)
        return None if host.replica is None or host.id in weak else host

    def _later(self, host: Host) -> None:
        """Restart the process, at once or after a while."""
        self._clock.after(self._rng.choice([0.0, 0.3, 3.0]) * self._rng.random(), self._simulation.revive, host)
