"""Building blocks of scripted runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.simulation.profiles import Profile
from tests.simulation.run import Simulation

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.host import Host
    from tests.simulation.interfaces import Subject

__all__ = ["FAST_S", "Scenario", "Stage"]

QUIET_S = 40.0
NOTICE_S = (0.0, 0.05)
FAST_S = (0.001, 0.002)


class Stage:
    """A simulation with the operations that scripts use."""

    def __init__(self, subject: Subject, nodes: int, *, spares: int = 0) -> None:
        self.simulation = Simulation(subject, Profile("scenario", nodes=nodes, spares=spares), seed=1)
        self.network = self.simulation.network
        self.run_for = self.simulation.run_for

    def elect(self) -> tuple[Host, list[Host]]:
        """Start all members; return the leader and the others."""
        self.simulation.start_members()
        self.run_for(5.0)
        leader = self.leader()
        return leader, [host for host in self.simulation.hosts.values() if host.running and host is not leader]

    def leader(self) -> Host:
        leaders = [host for host in self.simulation.hosts.values() if host.replica and host.replica.is_leader]
        return max(leaders, key=lambda host: host.replica.term)

    def propose(self, host: Host, count: int, size_bytes: int = 100) -> None:
        for _ in range(count):
            self.simulation.workload.propose(host, size_bytes)

    def cut(self, hosts: list[Host], others: list[Host]) -> None:
        for one in hosts:
            for other in others:
                if one is not other:
                    self.network.cut(one.id, other.id, notice_s=NOTICE_S)

    def join_all(self) -> None:
        hosts = sorted(self.simulation.hosts)
        for one in hosts:
            for other in hosts:
                if one < other:
                    self.network.join(one, other)

    def finish(self) -> set[str]:
        """Wait until the cluster settles and make the final checks."""
        self.simulation.settle(QUIET_S)
        self.simulation.probe()
        self.simulation.settle(QUIET_S)
        self.simulation.check_converged()
        return {violation.kind for violation in self.simulation.checkers.violations}


@dataclass(frozen=True)
class Scenario:
    """A script, the violation with which stock PySyncObj ends it, and the subjects that must pass it.

    `stock_kind` is None where stock PySyncObj cannot be compared.
    """

    run: Callable[[Subject], set[str]]
    stock_kind: str | None
    mended: tuple[str, ...] = ("core", "node")
    log_entries: int | None = None
    durability: str = "memory"
