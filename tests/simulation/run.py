"""One run: a cluster of some subject under a profile's faults, from one seed."""

from __future__ import annotations

import contextlib
import hashlib
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING
from unittest.mock import patch

from lmqcluster.core import State
from lmqcluster.replication.storage.meta import NodeMeta
from tests.simulation.checkers import Checkers, Violation
from tests.simulation.clock import Clock
from tests.simulation.faults import Nemesis
from tests.simulation.host import Host
from tests.simulation.library import deterministic_library
from tests.simulation.network import Network
from tests.simulation.workload import Workload

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.simulation.interfaces import Subject
    from tests.simulation.profiles import Profile

__all__ = ["Report", "Simulation", "simulate"]

PROBE_LIMIT_S = 10.0
SETTLE_STEP_S = 0.7
"""No multiple of it is near the intervals of schedules, so that some steps end while none is due."""
LOOK_S = 0.02


@dataclass(frozen=True)
class Report:
    """The outcome of a run; equal seeds give equal reports."""

    subject: str
    profile: str
    seed: int
    violations: tuple[Violation, ...]
    proposed: int
    acknowledged: int
    elections: int
    messages: int
    fingerprint: str
    trace: tuple[str, ...]

    @property
    def command(self) -> str:
        """Return the command that replays the run."""
        return f"python -m tests.simulation --seed {self.seed} --profile {self.profile} --subject {self.subject}"

    @property
    def kinds(self) -> set[str]:
        return {violation.kind for violation in self.violations}

    def __str__(self) -> str:
        summary = (
            f"{self.subject} {self.profile} seed {self.seed}: {self.acknowledged} of {self.proposed} acknowledged, "
            f"{self.elections} elections, {self.messages} messages, {len(self.violations)} violations"
        )
        lines = [summary]
        lines.extend(f"  {violation}" for violation in self.violations[:10])
        if self.violations:
            lines.append(f"  replay: {self.command} --trace")
        return "\n".join(lines)


class Simulation:
    """The machines and their events. Scripted scenarios drive it by hand, `simulate` by a seed."""

    def __init__(
        self,
        subject: Subject,
        profile: Profile,
        seed: int,
        *,
        trace: bool = False,
        checkers: Callable[..., Checkers] = Checkers,
    ) -> None:
        self.profile = profile
        self.seed = seed
        self.subject = subject
        self.clock = Clock()
        self.library_rng = random.Random(f"{seed}:library")
        self.checkers = checkers(self.clock, retries=subject.retries)
        if trace:
            self.checkers.trace = []
        self.network = Network(self.clock, seed, profile.delay_s, shared_connections=subject.shared_connections)
        self.hosts: dict[str, Host] = {}
        self._rng = random.Random(f"{seed}:supervisor")
        self._at_rest = False
        names = [f"n{number}" for number in range(1, profile.nodes + profile.spares + 1)]
        self.members = names[: profile.nodes]
        for name in names:
            rng = random.Random(f"{seed}:{name}")
            host = Host(name, self.clock, self.network, self.checkers, subject, rng, self._died)
            host.program = profile.program
            self.hosts[name] = host
            self.network.attach(host)
        self.workload = Workload(
            self.clock,
            self.checkers,
            self.hosts,
            random.Random(f"{seed}:workload"),
            every_s=profile.propose_every_s,
            size_bytes=profile.command_bytes,
        )

    @contextlib.contextmanager
    def world(self) -> Iterator[None]:
        """Enter the context in which the whole run happens; the processes end with it."""
        program = self.profile.program
        newest = State.VERSION_MAX if program is None else program + 1
        version = patch.object(State, "VERSION_MAX", newest)
        with version, deterministic_library(self.clock, self.library_rng), self.subject.world(self):
            yield
            for host in self.hosts.values():
                host.kill()

    def start_members(self) -> None:
        for name in self.members:
            self.hosts[name].start(self.members)

    def begin_again(self) -> None:
        """Accept that all data is lost; only terms and votes still bind the members."""
        self.checkers.begin_again()
        self.subject.begin_again()

    def is_at_rest(self) -> bool:
        """Return whether the time of faults and of load is over."""
        return self._at_rest

    def rest(self) -> None:
        """End the load."""
        self._at_rest = True

    def _died(self, host: Host) -> None:
        """Handle a process that ended by itself: a supervisor restarts it, and an operator repairs a node that refuses
        to start.
        """
        self.clock.after(self._rng.uniform(0.1, 1.5), self.revive, host)

    def revive(self, host: Host) -> None:
        """Restart a dead member's process."""
        if host.running or host.retired:
            return
        if host.refused and not self._repair(host):
            self._died(host)
            return
        # A node without data gets the list of members when it starts, or joins again.
        host.start(self.members, joining=host.id not in self.members)

    def _repair(self, host: Host) -> bool:
        """Discard log and snapshots as `lmq repair` does, so that the leader sends them; return False if the
        disk is full.
        """
        self.checkers.note("repair", host.id)
        meta = NodeMeta.read(host.disk(""))
        assert meta is not None
        try:
            meta.discard_data()
        except OSError:
            return False
        host.may_forget = True
        host.refused = host.harmed = False
        return True

    def run_for(self, duration_s: float, *, until_violation: bool = False) -> None:
        violations = self.checkers.violations
        self.clock.run_until(self.clock.now + duration_s, lambda: until_violation and bool(violations))

    def voters(self) -> list[Host]:
        """Return the machines that count: running members in the view of the leader with the highest term."""
        leaders = [host.replica for host in self.hosts.values() if host.replica is not None and host.replica.is_leader]
        if not leaders:
            return [self.hosts[name] for name in self.members]
        members = max(leaders, key=lambda replica: replica.term).members
        return [self.hosts[name] for name in members]

    def divergence(self) -> list[str]:
        """Yield the remaining differences among those that count: leaders, logs, commit indexes."""
        found = []
        hosts = self.voters()
        leaders = [host.id for host in hosts if host.replica is not None and host.replica.is_leader]
        if len(leaders) != 1:
            found.append(f"leaders: {leaders}")
        target = self.checkers.commit_index
        for host in hosts:
            if host.replica is None:
                found.append(f"{host.id} does not run")
                continue
            log, commit = host.replica.journal.view, host.replica.commit_index
            if not log.last == commit == target:
                found.append(f"{host.id}: log to {log.last}, commit {commit} of {target}")
            if host.replica.members != [each.id for each in hosts]:
                found.append(f"{host.id}: members {host.replica.members} of {[each.id for each in hosts]}")
        return found

    def settle(self, limit_s: float) -> None:
        """Run without faults until all agree and nothing is in flight, at most `limit_s`."""
        deadline = self.clock.now + limit_s
        while self.clock.now < deadline:
            # Due times and expiries keep the log busy, and a slow network makes the moments rare in which all agree.
            self.run_for(SETTLE_STEP_S if self.clock.now < deadline - limit_s / 2 else LOOK_S)
            if not self.divergence():
                break

    def check_converged(self) -> None:
        """Check after healing that all have the same log, commit index and history with everything acknowledged."""
        report = self.checkers.report
        for difference in self.divergence():
            report("not converged", difference)
        last_acknowledged = max(self.checkers.acknowledged.values(), default=0)
        for host in self.voters():
            if host.application.index < last_acknowledged:
                detail = f"{host.id} applied up to {host.application.index}, acknowledged is index {last_acknowledged}"
                report("acknowledged lost", detail)
        for command, index in self.checkers.acknowledged.items():
            if command not in self.checkers.history[index][0]:
                report("acknowledged lost", f"{command[:12]!r} was acknowledged at index {index}")
        self.subject.check_end(self)

    def probe(self) -> None:
        """Check that each node that counts carries out a proposal, its first or a later one."""
        acknowledged = self.checkers.acknowledged
        probes: dict[str, list[bytes]] = {host.id: [] for host in self.voters()}
        deadline = self.clock.now + PROBE_LIMIT_S
        while self.clock.now < deadline:
            missing = [name for name, sent in probes.items() if not any(each in acknowledged for each in sent)]
            if not missing:
                return
            for name in missing:
                probes[name].append(self.workload.propose(self.hosts[name]))
            self.run_for(SETTLE_STEP_S)
        for name in missing:
            self.checkers.report("stuck", f"{name} carried out no probe within {PROBE_LIMIT_S} s")

    def run(self, *, until_violation: bool) -> None:
        """Run faults for `profile.duration_s`, then healing, quiet, and the checks of the end."""
        profile, violations = self.profile, self.checkers.violations
        self.start_members()
        nemesis = Nemesis(self, random.Random(f"{self.seed}:nemesis"))
        nemesis.until = self.workload.until = self.clock.now + profile.duration_s
        self.workload.start()
        nemesis.start()
        self.run_for(profile.duration_s, until_violation=until_violation)
        if not (until_violation and violations):
            nemesis.heal()
            self.rest()
            self.settle(profile.quiet_s)
        if not (until_violation and violations):
            self.probe()
            self.settle(PROBE_LIMIT_S)
            self.check_converged()

    def report(self) -> Report:
        history = hashlib.blake2b(digest_size=8)
        for index, (command, _) in sorted(self.checkers.history.items()):
            history.update(b"%d %b;" % (index, command))
        history.update(b"%d %d" % (self.clock.events_run, self.network.messages_sent))
        return Report(
            subject=self.subject.name,
            profile=self.profile.name,
            seed=self.seed,
            violations=tuple(self.checkers.violations),
            proposed=self.workload.proposed,
            acknowledged=len(self.checkers.acknowledged),
            elections=self.checkers.elections,
            messages=self.network.messages_sent,
            fingerprint=history.hexdigest(),
            trace=tuple(self.checkers.trace or ()),
        )


def simulate(
    subject: Subject, profile: Profile, seed: int, *, until_violation: bool = True, trace: bool = False
) -> Report:
    """Run a whole simulation and return its report."""
    simulation = Simulation(subject, profile, seed, trace=trace)
    with simulation.world():
        simulation.run(until_violation=until_violation)
        return simulation.report()
