"""Combined faults at the worst moment: during an election, or while few members hold what is committed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lmqcluster.replication.storage.node_storage import JOURNAL, SNAPSHOTS
from tests.simulation.member_faults import MemberFaults
from tests.simulation.network_faults import NetworkFaults

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tests.simulation.host import Host

__all__ = ["Ambushes"]

BURST_MAX = 120
BURSTS = (0, 3, 10, 30, 60, BURST_MAX)
BURST_BYTES = (10, 60)
ELECTION_PATIENCE_S = 6.0
LOOK_EVERY_S = 0.02
SHORT_S = (0.0, 0.3)
INSTALL_WRITES_MAX = 4
HAND_BACK_TRIES = 10
QUIET_S = 2.5


class Ambushes(NetworkFaults, MemberFaults):
    """Combinations that single faults rarely produce. Each strikes several faults at related moments."""

    def _rival(self) -> None:
        """Cut off a leader that continues to accept commands and later rejoins with a shorter log or from a snapshot.

        Of five members, one may stay with it. It may also become leader again before the connection between these two
        breaks.
        """
        old = self._leader()
        if old is None:
            return
        duration_s = self._rng.uniform(1.5, 5.0)
        self._checkers.note("rival", f"{old.id} for {duration_s:.3f} s")
        party = [old]
        others = [host for host in self._settled_members() if host is not old]
        if len(others) > 3:
            party.append(self._rng.choice(others))
        self._cut_off(party, duration_s)
        self._burst(old, self._rng.choice(BURSTS))
        self._soon(duration_s * self._rng.uniform(0.8, 1.0), self._shorten_logs, old)
        self._soon(duration_s, self._meet_rival, old)
        if self._rng.random() < 0.5:
            self._soon(duration_s, self._hand_back, old, HAND_BACK_TRIES)

    def _shorten_logs(self, old: Host) -> None:
        """Compact the logs of the other members, so that the returning leader needs a snapshot."""
        for host in self._settled_members():
            if host is not old and self._rng.random() < 0.7:
                self._take_snapshot(host)

    def _meet_rival(self, old: Host) -> None:
        """Perhaps kill the returning leader while it takes over the state or the log; compact its log soon after."""
        if self._rng.random() < 0.5 and old.running and not self._subject.forgets(power=False):
            folder = self._rng.choice([JOURNAL, JOURNAL, SNAPSHOTS])
            old.crash_in_writing(folder, self._rng.randrange(INSTALL_WRITES_MAX), power=False)
            return
        for _ in range(3):
            self._soon(self._rng.uniform(0.0, 4.0), self._restart_safely, old)
            self._soon(self._rng.uniform(0.0, 4.0), self._take_snapshot, old)

    def _take_snapshot(self, host: Host) -> None:
        if host.replica is not None:
            host.input(host.replica.take_snapshot)

    def _hand_back(self, old: Host, tries: int) -> None:
        leader = self._leader()
        if leader is not None and leader is not old and leader.replica is not None and tries:
            leader.input(leader.replica.transfer, old.id)
            self._soon(self._rng.uniform(*SHORT_S), self._hand_back, old, tries - 1)

    def _usurp(self) -> None:
        """Cut off a new leader right after its election; a voter forgets and hears from the old leader first."""
        old = self._leader()
        if old is None:
            return
        self._checkers.note("usurp", old.id)
        if self._rng.random() < 0.5:
            self._simulation.workload.pause(QUIET_S)
        self._soon(self._rng.uniform(*SHORT_S), self._cut_off, [old], ELECTION_PATIENCE_S)
        self._when_led_by_another(old, self._follow_new)

    def _follow_new(self, old: Host, new: Host) -> None:
        self._burst(new, self._rng.choice([0, 0, 30, BURST_MAX]))
        self._soon(self._rng.uniform(*SHORT_S), self._strike_voter, old, new)

    def _strike_voter(self, old: Host, new: Host) -> None:
        voters = [host for host in self._settled_members() if host not in (old, new) and self._may_forget(host)]
        if not voters:
            return
        voter = self._rng.choice(voters)
        duration_s = self._rng.uniform(0.5, 3.0)
        self._cut_off([new], duration_s)
        self._let_forget(voter)
        self._network.join(old.id, voter.id)
        for _ in range(10):
            self._soon(self._rng.uniform(0.2, duration_s), self._burst, old, 1)
        if self._rng.random() < 0.5:
            # The voter then receives messages of the new leader, slowly, and of the old one again before it has
            # recovered.
            self._when(lambda: _has_heard(voter, old), self._swap, voter, old, new)

    def _swap(self, one: Host, old: Host, new: Host) -> None:
        self._checkers.note("swap", f"{one.id} from {old.id} to {new.id}")
        self._network.cut(one.id, old.id, notice_s=(0.0, 0.05))
        self._network.slow(new.id, one.id, self._rng.choice([(0.05, 0.05), (0.05, 0.8), (0.3, 0.3)]))
        self._network.join(one.id, new.id)
        if self._rng.random() < 0.3:
            self._soon(self._rng.uniform(0.5, 3.0), self._swap_back, one, old, new)
        else:
            self._when(lambda: _is_trusted(one), self._swap_back, one, old, new)

    def _swap_back(self, one: Host, old: Host, new: Host) -> None:
        self._cut_off([new], self._duration())
        self._network.join(one.id, old.id)

    def _witness(self) -> None:
        """Erase one of the two members that hold the committed entries, and cut off the other one, the leader."""
        leader = self._leader()
        members = self._settled_members()
        witnesses = [host for host in members if host is not leader and self._may_forget(host)]
        if leader is None or not witnesses:
            return
        witness = self._rng.choice(witnesses)
        rest = [host for host in members if host not in (leader, witness)]
        before_s = self._rng.uniform(0.05, 0.6)
        self._checkers.note("witness", f"{witness.id} of {leader.id} in {before_s:.3f} s")
        for host in rest:
            for other in (leader, witness):
                self._network.cut(host.id, other.id, notice_s=(0.0, 0.05))
        self._burst(leader, self._rng.choice([1, 3, 20]))
        self._soon(before_s, self._strike_witness, leader, witness, rest)

    def _strike_witness(self, leader: Host, witness: Host, rest: list[Host]) -> None:
        if self._may_forget(witness):
            self._let_forget(witness)
        self._soon(self._rng.choice([0.0, 0.0, 0.2]), self._cut_off, [leader], self._rng.uniform(1.0, 4.0))
        for host in rest:
            self._network.join(host.id, witness.id)
            self._clock.after(self._duration(), self._network.join, host.id, leader.id)

    def _late(self) -> None:
        """Deliver answers of a follower after it forgot them, when its leader already knows its next life."""
        leader = self._leader()
        followers = [host for host in self._settled_members() if host is not leader and self._may_forget(host)]
        if leader is None or not followers:
            return
        follower = self._rng.choice(followers)
        delay_s = self._rng.uniform(0.5, 3.0)
        self._checkers.note("late", f"{follower.id}>{leader.id} {delay_s:.3f} s")
        self._network.slow(follower.id, leader.id, (delay_s, delay_s))
        self._burst(leader, self._rng.choice([3, 30, BURST_MAX]))
        self._network.keep_in_flight(follower.id, leader.id)
        self._soon(self._rng.uniform(*SHORT_S), self._forget_safely, follower)
        self._clock.after(
            self._rng.uniform(2.0, 5.0), self._network.slow, follower.id, leader.id, self._profile.delay_s
        )

    def _at_election(self) -> None:
        """Strike the next elected node at once: with membership changes, cuts, a crash, a burst of commands."""
        pause_s = self._rng.choice([0.0, 0.0, 0.001, 0.01])
        self._checkers.on_election.append(lambda host: self._soon(pause_s, self._strike_new, host))

    def _strike_new(self, host: Host) -> None:
        if host.replica is None or not host.replica.is_leader:
            return
        strike = self._rng.choice(["change", "change", "cut", "restart", "burst"])
        if strike == "change":
            self._change_members(host)
        elif strike == "cut":
            self._cut_off([host], self._duration())
        elif strike == "restart":
            self._restart_safely(host)
        self._burst(host, self._rng.choice([1, 10]))

    # --- parts --------------------------------------------------------------------------------------------------------

    def _soon(self, delay_s: float, strike: Callable[..., None], *arguments: Any) -> None:
        """Call `strike` after a delay, unless the time of faults has ended."""
        self._clock.after(delay_s, self._strike_in_time, strike, arguments)

    def _strike_in_time(self, strike: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        if not self.is_over:
            strike(*arguments)

    def _leader(self) -> Host | None:
        leaders = self._leaders()
        return self._rng.choice(leaders) if leaders else None

    def _burst(self, host: Host, count: int) -> None:
        if host.running and not self._simulation.is_at_rest():
            for _ in range(count):
                self._simulation.workload.propose(host, self._rng.randint(*BURST_BYTES))

    def _cut_off(self, party: Iterable[Host], duration_s: float) -> None:
        """Cut off some members from all others, but not from each other."""
        names = {host.id for host in party}
        self._cut_pairs(
            [(one, other) for one in sorted(names) for other in sorted(self._hosts.keys() - names)], duration_s
        )

    def _when_led_by_another(self, old: Host, strike: Callable[[Host, Host], None], passed_s: float = 0.0) -> None:
        """Strike once another node leads a later term, or not at all if that takes too long."""
        term = old.replica.term if old.replica is not None else 0
        found = [host for host in self._leaders() if host is not old and host.replica and host.replica.term > term]
        if found:
            strike(old, found[0])
        elif passed_s < ELECTION_PATIENCE_S:
            self._soon(LOOK_EVERY_S, self._when_led_by_another, old, strike, passed_s + LOOK_EVERY_S)

    def _when(self, is_ready: Callable[[], bool], strike: Callable[..., None], *arguments: Any) -> None:
        """Call `strike` once `is_ready()` is true, or not at all if that takes too long."""
        self._look(is_ready, strike, arguments, self._clock.now + ELECTION_PATIENCE_S)

    def _look(
        self, is_ready: Callable[[], bool], strike: Callable[..., None], arguments: tuple[Any, ...], until_s: float
    ) -> None:
        if is_ready():
            strike(*arguments)
        elif self._clock.now < until_s:
            self._soon(LOOK_EVERY_S, self._look, is_ready, strike, arguments, until_s)

    def _may_forget(self, host: Host) -> bool:
        """Return whether a running member may forget all it holds and those that lack something remain a minority."""
        members = self._settled_members()
        weak = {one.id for one in self._weak(members)} | {host.id}
        return host in members and host.running and not host.harmed and 2 * len(weak) < len(members)

    def _let_forget(self, host: Host) -> None:
        """Kill a process, erase what its durability mode does not guarantee, and restart it."""
        if self._subject.forgets(power=False):
            host.kill()
        elif self._subject.forgets(power=True):
            host.kill(power=True)
        elif host.id in self._simulation.members:
            host.kill()
            host.lose_disk()
        else:
            host.kill()
        self._simulation.revive(host)
        if self._rng.random() < 0.5:
            self._soon(self._rng.uniform(*SHORT_S), self._restart_again, host)

    def _forget_safely(self, host: Host) -> None:
        if self._may_forget(host):
            self._let_forget(host)

    def _restart_again(self, host: Host) -> None:
        """Kill the same process again before it has recovered what it lacks."""
        if host.running:
            host.kill()
            self._simulation.revive(host)

    def _restart_safely(self, host: Host) -> None:
        if host.running and (not self._subject.forgets(power=False) or self._may_forget(host)):
            host.kill()
            self._later(host)


def _has_heard(host: Host, leader: Host) -> bool:
    """Return whether a member is in the term of the leader."""
    return host.replica is not None and leader.replica is not None and host.replica.term == leader.replica.term


def _is_trusted(host: Host) -> bool:
    """Return whether a member considers itself recovered."""
    return host.replica is not None and not host.replica.recovering
