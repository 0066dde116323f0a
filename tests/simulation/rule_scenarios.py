"""Scripted runs for Raft's own rules and for those of upgrades: each violates a guarantee if the rule is left out."""

from __future__ import annotations

from typing import TYPE_CHECKING
from unittest.mock import patch

from lmqcluster.core import State
from lmqcluster.replication.base.membership import PeerNode
from tests.simulation.stage import FAST_S, Scenario, Stage

if TYPE_CHECKING:
    from tests.simulation.interfaces import Subject

__all__ = ["RULE_SCENARIOS"]


def snapshot_shorter_than_a_conflicting_log(subject: Subject) -> set[str]:
    """A follower whose log is longer than the leader's snapshot, but of a lost term, still needs the snapshot."""
    stage = Stage(subject, 3)
    with stage.simulation.world():
        old, others = stage.elect()
        stage.cut([old], others)
        stage.propose(old, 200, size_bytes=20)
        stage.run_for(6.0)
        leader = stage.leader()
        for _ in range(40):
            stage.propose(leader, 1)
            stage.run_for(0.05)
        leader.input(leader.replica.take_snapshot)
        stage.run_for(1.0)
        snapshot = leader.replica.core._snapshots.latest()
        assert snapshot.index < old.replica.journal.view.last
        assert leader.replica.journal.view.first > old.replica.commit_index
        stage.join_all()
        stage.run_for(5.0)
        return stage.finish()


def change_before_an_entry_of_the_term(subject: Subject) -> set[str]:
    """A new leader accepts no membership change before an entry of its term is committed (Ongaro, 2015)."""
    stage = Stage(subject, 3, spares=1)
    with stage.simulation.world():
        old, others = stage.elect()
        for host in others:
            # Votes arrive, but no member confirms the entry with which the term begins.
            for other in others:
                if host is not other:
                    stage.network.slow(host.id, other.id, (0.05, 0.05))
        stage.simulation.hosts["n4"].start(stage.simulation.members, joining=True)
        old.kill()
        while not any(host.replica.is_leader for host in others):
            stage.run_for(0.001)
        leader = stage.leader()
        assert leader.replica.commit_index < leader.replica.journal.view.last
        leader.input(leader.replica.change_members, True, "n4")
        leader.input(leader.replica.step if subject.wants_steps else leader.replica.node.replica.steps.step)
        changed = "n4" in leader.replica.members and leader.replica.commit_index < leader.replica.journal.view.last
        for host in others:
            for other in others:
                if host is not other:
                    stage.network.slow(host.id, other.id, FAST_S)
        stage.simulation.revive(old)
        return ({"members changed too soon"} if changed else set()) | stage.finish()


def earlier_term_on_a_majority(subject: Subject) -> set[str]:
    """An entry of an earlier term is committed only with one of the leader's own (Raft, figure 8)."""
    stage = Stage(subject, 3)
    with stage.simulation.world():
        first, (second, third) = stage.elect()
        # Only its leader has the entry; it becomes leader again in a later term.
        stage.cut([first], [second, third])
        stage.propose(first, 1, size_bytes=900)
        stage.run_for(0.2)
        position = first.replica.journal.view.last
        core = first.replica.core
        stage.run_for(5.0)
        first.input(core._SyncObj__setCurrentTerm, stage.leader().replica.term + 3, first.id)
        first.input(core._SyncObj__setState, 1)
        first.input(core._SyncObj__onBecomeLeader)
        term = first.replica.term
        matched = core._SyncObj__raftMatchIndex
        # Its followers hold everything except the entry with which its term begins.
        for node in core._SyncObj__otherNodes:
            matched[node] = position
            core._SyncObj__lastResponseTime[node] = stage.simulation.clock.now
        commit_before = first.replica.commit_index
        core.doTick(0.0)
        committed = core.term() == term and core.commit_index() > commit_before
        return {"earlier term committed"} if committed else set()


def upgrade_while_a_member_is_unknown(subject: Subject) -> set[str]:
    """The machine version rises only after all members have reported theirs; one that is down may have the
    old program.
    """
    stage = Stage(subject, 3)
    # The next release stands in for the program under test.
    with patch.object(State, "VERSION_MAX", 2), stage.simulation.world():
        hosts = list(stage.simulation.hosts.values())
        stage.simulation.start_members()
        for host in hosts:
            # The version that the old program reports.
            host.replica.node._about.machine_version = 1
        stage.run_for(5.0)
        versions = {host.replica.node.replica.machine.state.version for host in hosts}
        old = hosts[2]
        old.kill()
        for host in hosts[:2]:
            host.kill()
            stage.simulation.revive(host)
        stage.run_for(8.0)
        versions |= {host.replica.node.replica.machine.state.version for host in hosts[:2]}
        kinds = {"upgraded too soon"} if versions != {1} else set()
        stage.simulation.revive(old)
        return kinds | stage.finish()


def change_that_was_truncated(subject: Subject) -> set[str]:
    """A membership change that a leader lost with a truncated log does not prevent further changes when it
    leads again.
    """
    stage = Stage(subject, 3, spares=1)
    with stage.simulation.world():
        first, others = stage.elect()
        stage.cut([first], others)
        stage.propose(first, 60, size_bytes=20)
        stage.run_for(0.1)
        first.input(first.replica.change_members, False, others[1].id)
        stage.run_for(5.0)
        second = stage.leader()
        stage.join_all()
        stage.run_for(2.0)
        second.input(second.replica.transfer, first.id)
        stage.run_for(2.0)
        assert first.replica.is_leader
        assert first.replica.journal.view.last < 60
        first.input(first.replica.change_members, False, others[1].id)
        stage.run_for(1.0)
        changed = others[1].id not in first.replica.members
        first.input(first.replica.change_members, True, others[1].id)
        return (set() if changed else {"change refused"}) | stage.finish()


def call_to_lead_that_cannot_be_followed(subject: Subject) -> set[str]:
    """A node that is asked to take over and cannot must forget the request and not campaign out of turn later."""
    stage = Stage(subject, 3)
    with stage.simulation.world():
        leader, (follower, _) = stage.elect()
        core = follower.replica.core
        contact = (PeerNode(leader.id, leader.id), leader.replica.term)
        recovery = core._recovery
        recovery.is_recovering, recovery._contact, recovery._target = True, contact, 1 << 40
        leader.input(leader.replica.transfer, follower.id)
        stage.run_for(0.2)
        kept = core._SyncObj__transferInProgress
        recovery._target = 0
        return ({"call to lead kept"} if kept else set()) | stage.finish()


def replica_that_differs(subject: Subject) -> set[str]:
    """A replica whose state differs from that of a majority stops itself; the others continue."""
    stage = Stage(subject, 3)
    with stage.simulation.world():
        leader, others = stage.elect()
        odd = others[0]
        stage.propose(leader, 5)
        stage.run_for(2.0)
        odd.replica.node.replica.machine.state.last_sequence += 1
        stage.run_for(8.0)
        lives = [host.life for host in (leader, *others)]
        reasons = [violation.detail for violation in stage.simulation.checkers.violations]
        if lives != [1, 2, 1] or not any(odd.id in reason and "lmq repair" in reason for reason in reasons):
            return {"divergent replica continues"}
        return set()


RULE_SCENARIOS = {
    "replica that differs": Scenario(replica_that_differs, None, mended=("node",), durability="disk"),
    "change that was truncated": Scenario(change_that_was_truncated, None, mended=("core",)),
    "call to lead that cannot be followed": Scenario(call_to_lead_that_cannot_be_followed, None, mended=("core",)),
    "snapshot shorter than a conflicting log": Scenario(
        snapshot_shorter_than_a_conflicting_log, None, mended=("core",), log_entries=10
    ),
    "change before an entry of the term": Scenario(
        change_before_an_entry_of_the_term, None, mended=("core",), durability="disk"
    ),
    "earlier term on a majority": Scenario(earlier_term_on_a_majority, None, mended=("core",)),
    "upgrade while a member is unknown": Scenario(
        upgrade_while_a_member_is_unknown, None, mended=("node",), durability="disk"
    ),
}
