"""Membership changes, leadership transfers, and rolling restarts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.fault_base import FaultBase

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.simulation.host import Host

__all__ = ["MemberFaults"]

ASK_EVERY_S = 0.3
JOIN_PATIENCE_S = 20.0
RETIRE_AFTER_S = 3.0
ROLL_EVERY_S = 2.5
FORGETTING = {"usurp", "witness", "late"}
"""Faults after which a member lacks what it has acknowledged, in every durability mode."""


class MemberFaults(FaultBase):
    """Actions of operators."""

    def _membership(self) -> None:
        """Ask the leader to add or remove a node, or for two changes at once, without asking whether that is wise."""
        leaders = self._leaders()
        if leaders:
            self._change_members(self._rng.choice(leaders))

    def _change_members(self, leader: Host) -> None:
        assert leader.replica is not None
        members = leader.replica.members
        smallest = 2
        if (self._subject.forgets(power=False) and "restart" in self._profile.faults) or (
            FORGETTING & self._profile.faults.keys()
        ):
            smallest = 3
            if self._weak([self._hosts[name] for name in members]):
                return
        for host in self._rng.sample(list(self._hosts.values()), self._rng.choice([1, 1, 2])):
            add = host.id not in members
            if host is leader or host.retired or (not add and len(members) <= smallest):
                continue
            self._checkers.note("member", f"{leader.id} is asked to {'add' if add else 'remove'} {host.id}")
            if not host.running:
                self._begin_joining(host, members)
            leader.input(leader.replica.change_members, add, host.id)

    def _begin_joining(self, host: Host, members: Sequence[str]) -> None:
        if host.life == 0:
            host.start(members, joining=True)
        else:
            self._simulation.revive(host)

    def _join(self) -> None:
        """Add a node that has never run: it becomes a learner and then a voter."""
        leaders = self._leaders()
        fresh = [host for host in self._hosts.values() if host.life == 0]
        if leaders and fresh:
            leader = self._rng.choice(leaders)
            assert leader.replica is not None
            self._checkers.note("join", f"{fresh[0].id} by {leader.replica.members}")
            self._begin_joining(fresh[0], leader.replica.members)
            self._ask_for(fresh[0], self._clock.now + JOIN_PATIENCE_S)

    def _ask_for(self, host: Host, until: float) -> None:
        leaders = self._leaders()
        if any(host.id in leader.replica.members for leader in leaders if leader.replica) or self._clock.now > until:
            return
        if leaders:
            leader = self._rng.choice(leaders)
            assert leader.replica is not None
            leader.input(leader.replica.admit, host.id)
        self._clock.after(ASK_EVERY_S, self._ask_for, host, until)

    def _leave(self) -> None:
        """Remove a member permanently; a leader transfers its leadership first."""
        members = self._settled_members()
        if len(members) <= self._profile.nodes - 1 or self._weak(members):
            return
        host = self._rng.choice(members)
        leaders = self._leaders()
        if host in leaders:
            assert host.replica is not None
            host.input(host.replica.transfer, None)
            return
        leader = self._rng.choice(leaders)
        assert leader.replica is not None
        self._checkers.note("leave", host.id)
        leader.input(leader.replica.change_members, False, host.id)
        self._clock.after(RETIRE_AFTER_S, self._retire, host)

    def _retire(self, host: Host) -> None:
        """Stop a host once it is removed and all members know it."""
        if host not in self._settled_members() and self._settled_members() and host.running:
            host.retired = True
            host.kill()

    def _transfer(self) -> None:
        leaders = self._leaders()
        if leaders:
            leader = self._rng.choice(leaders)
            assert leader.replica is not None
            target = self._rng.choice([None, *leader.replica.members])
            leader.input(leader.replica.transfer, target)

    def _rolling(self) -> None:
        """Restart all members one after the other; the leader transfers its leadership first."""
        for nth, host in enumerate(self._simulation.voters()):
            self._clock.after(nth * ROLL_EVERY_S, self._hand_over, host)
            self._clock.after(nth * ROLL_EVERY_S + 0.3, self._roll, host)

    def _renew(self) -> None:
        """Upgrade a machine from an older program to the program under test."""
        old = [host for host in self._hosts.values() if host.running and host.program is not None]
        if old and not self._subject.forgets(power=False):
            host = self._rng.choice(old)
            self._checkers.note("renew", host.id)
            host.kill()
            host.program = None
            self._later(host)

    def _hand_over(self, host: Host) -> None:
        if host.replica is not None and host.replica.is_leader:
            host.input(host.replica.transfer, None)

    def _roll(self, host: Host) -> None:
        if not host.running or (self._subject.forgets(power=False) and self._expendable() is None):
            return
        host.kill()
        self._clock.after(self._rng.uniform(0.2, 1.0), self._simulation.revive, host)

    def _snapshot(self) -> None:
        host = self._hosts[self._leader_or_any()]
        if host.replica is not None:
            host.input(host.replica.take_snapshot)
