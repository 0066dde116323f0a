"""Scripted runs, one per mended defect of PySyncObj: each follows the description in the audit.

Each takes a subject and returns the kinds of violations with which the run ended.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pysyncobj.node import Node

from tests.simulation.stage import FAST_S, Scenario, Stage

if TYPE_CHECKING:
    from tests.simulation.interfaces import Subject

__all__ = ["SCENARIOS"]


def overlap(subject: Subject) -> set[str]:
    """D1: entries that are resent over a slow link must not truncate entries that already match."""
    stage = Stage(subject, 3)
    with stage.simulation.world():
        leader, others = stage.elect()
        for other in others:
            stage.network.slow(leader.id, other.id, (0.2, 0.3))
        for _ in range(60):
            stage.propose(leader, 2)
            stage.run_for(0.05)
        stage.run_for(10.0)
        # On slow links, messages are always in flight.
        for other in others:
            stage.network.slow(leader.id, other.id, FAST_S)
        return stage.finish()


def commit_unverified(subject: Subject) -> set[str]:
    """D2: a leader that was cut off returns over a slow link and gets a commit index beyond the compared entries."""
    stage = Stage(subject, 3)
    with stage.simulation.world():
        old, others = stage.elect()
        stage.propose(old, 4)
        stage.run_for(1.0)
        stage.cut([old], others)
        stage.propose(old, 5)
        stage.run_for(6.0)
        new = stage.leader()
        # Enough entries that the log behind the old leader's entries is compacted.
        for _ in range(40):
            stage.propose(new, 3)
            stage.run_for(0.1)
        stage.network.slow(new.id, old.id, (0.05, 0.6))
        stage.join_all()
        stage.run_for(10.0)
        stage.network.slow(new.id, old.id, FAST_S)
        return stage.finish()


def reply_of_earlier_term(subject: Subject) -> set[str]:
    """D3: replies on a slow path that belong to an earlier leadership must not count in the current one."""
    stage = Stage(subject, 5)
    with stage.simulation.world():
        leader, (follower, *rest) = stage.elect()
        stage.network.slow(follower.id, leader.id, (10.0, 10.0))
        stage.cut([leader, follower], rest)
        stage.propose(leader, 50)
        stage.run_for(4.0)
        stage.join_all()
        stage.run_for(3.0)
        interim = stage.leader()
        assert interim in rest, "the majority has elected another leader"
        core = interim.replica.core
        interim.input(core.transferLeadership, Node(leader.id))
        stage.run_for(2.5)
        assert leader.replica.is_leader, "leadership came back by transfer"
        stage.cut([leader], rest[1:])
        stage.network.block(leader.id, follower.id)
        stage.propose(leader, 5)
        stage.run_for(2.0)
        stage.network.unblock(leader.id, follower.id)
        stage.network.slow(follower.id, leader.id, FAST_S)
        stage.join_all()
        return stage.finish()


def back_up(subject: Subject) -> set[str]:
    """D14: one divergent entry at a node that was cut off, and several batches to send to it."""
    stage = Stage(subject, 3)
    with stage.simulation.world():
        old, others = stage.elect()
        stage.cut([old], others)
        stage.propose(old, 1)
        stage.run_for(6.0)
        second = stage.leader()
        stage.propose(second, 40, size_bytes=400)
        stage.run_for(2.0)
        # The third leader begins after all of these entries and has to search back to where the old leader's log
        # differs.
        third = next(host for host in others if host is not second)
        for _ in range(5):
            # An entry of the leader may be in flight now; no other member can take over without it.
            second.input(second.replica.core.transferLeadership, Node(third.id))
            stage.run_for(2.0)
            if third.replica.is_leader:
                break
        assert third.replica.is_leader, "leadership was transferred"
        for one, other in ((third, old), (old, third)):
            stage.network.slow(one.id, other.id, (0.08, 0.08))
        stage.join_all()
        stage.run_for(20.0)
        behind = old.replica.journal.view.last + 20 < third.replica.journal.view.last
        kinds = {"not converged"} if behind else set()
        return kinds | stage.finish()


def poisoned_command(subject: Subject) -> set[str]:
    """D15: a command that the application cannot execute fails alone and does not end the cluster."""
    stage = Stage(subject, 3)
    with stage.simulation.world():
        leader, _others = stage.elect()
        leader.input(leader.replica.propose_poison)
        stage.run_for(1.0)
        stage.propose(leader, 3)
        return stage.finish()


def raising_callback(subject: Subject) -> set[str]:
    """D16: an exception while an answer is delivered must not apply its entry again."""
    stage = Stage(subject, 3)
    with stage.simulation.world():
        leader, _others = stage.elect()
        leader.input(leader.replica.propose_with_raising_callback, b"99999999:")
        stage.run_for(1.0)
        stage.propose(leader, 3)
        return stage.finish()


def reply_of_earlier_life(subject: Subject) -> set[str]:
    """Acknowledgements that a process sent shortly before it died must not count for its successor with an
    empty log.
    """
    stage = Stage(subject, 3)
    with stage.simulation.world():
        leader, (follower, _) = stage.elect()
        stage.network.slow(follower.id, leader.id, (2.0, 2.0))
        stage.propose(leader, 50)
        stage.run_for(0.1)
        stage.network.keep_in_flight(follower.id, leader.id)
        follower.kill()
        follower.start(stage.simulation.members)
        # The successor receives the leader's messages at once, but cannot answer before the old replies have arrived.
        stage.network.forbid(follower.id, leader.id)
        stage.run_for(2.5)
        stage.network.slow(follower.id, leader.id, FAST_S)
        stage.join_all()
        return stage.finish()


def snapshot_reply_lost(subject: Subject) -> set[str]:
    """The return path is down when a follower has installed a snapshot: the leader must learn of it in another way."""
    stage = Stage(subject, 3)
    with stage.simulation.world():
        leader, (follower, other) = stage.elect()
        stage.cut([follower], [leader, other])
        for _ in range(30):
            stage.propose(leader, 3)
            stage.run_for(0.05)
        stage.network.slow(follower.id, leader.id, (0.2, 0.2))
        stage.join_all()
        before = follower.application.index
        while follower.application.index == before:
            stage.run_for(0.005)
        stage.network.forbid(follower.id, leader.id)
        stage.run_for(0.5)
        stage.network.slow(follower.id, leader.id, FAST_S)
        stage.join_all()
        return stage.finish()


def all_members_restart(subject: Subject) -> set[str]:
    """Without a durable log, members that have all lost their logs have nothing to wait for: they start over."""
    stage = Stage(subject, 3)
    with stage.simulation.world():
        leader, others = stage.elect()
        stage.propose(leader, 20)
        stage.run_for(2.0)
        for host in (leader, *others):
            host.kill()
        stage.run_for(1.0)
        stage.simulation.begin_again()
        for host in (leader, *others):
            host.start(stage.simulation.members)
            stage.run_for(0.4)
        return stage.finish()


def joins_by_a_list_that_fails(subject: Subject) -> set[str]:
    """A node that gets the list of members from a leader whose latest change is then undone must end with the
    right list.
    """
    stage = Stage(subject, 3, spares=1)
    with stage.simulation.world():
        old, others = stage.elect()
        stage.cut([old], others)
        old.input(old.replica.change_members, False, others[0].id)
        stage.run_for(0.4)
        believed = old.replica.members
        assert len(believed) == 2, "the removal is in the old leader's log"
        added = stage.simulation.hosts["n4"]
        added.start(believed, joining=True)
        stage.run_for(5.0)
        stage.join_all()
        stage.run_for(2.0)
        leader = stage.leader()
        leader.input(leader.replica.change_members, True, added.id)
        return stage.finish()


def restarts_with_a_list_that_failed(subject: Subject) -> set[str]:
    """Repeat this with a leader that restarts and remembers a change that was undone."""
    stage = Stage(subject, 3)
    with stage.simulation.world():
        old, others = stage.elect()
        stage.cut([old], others)
        old.input(old.replica.change_members, False, others[0].id)
        stage.run_for(0.4)
        assert len(old.replica.members) == 2, "the removal is in the old leader's log"
        old.kill()
        stage.run_for(5.0)
        stage.simulation.revive(old)
        stage.join_all()
        return stage.finish()


def vote_for_unknown_member(subject: Subject) -> set[str]:
    """A member that was cut off while another one was added must vote for the new one: otherwise there is no
    majority.
    """
    stage = Stage(subject, 3, spares=1)
    with stage.simulation.world():
        leader, (behind, other) = stage.elect()
        stage.cut([behind], [leader, other])
        added = stage.simulation.hosts["n4"]
        added.start(stage.simulation.members, joining=True)
        leader.input(leader.replica.change_members, True, added.id)
        stage.run_for(1.0)
        assert len(leader.replica.members) == 4, "the fourth member was added"
        # The new member's log becomes the longest of those that survive the leader.
        stage.cut([leader], [other])
        stage.propose(leader, 3)
        stage.run_for(0.3)
        leader.kill()
        stage.join_all()
        stage.run_for(20.0)
        survivors = [host.replica for host in (behind, other, added)]
        kinds = set() if any(replica.is_leader for replica in survivors) else {"no leader of three out of four"}
        stage.simulation.revive(leader)
        return kinds | stage.finish()


SCENARIOS = {
    "D1 overlap": Scenario(overlap, "committed entry removed"),
    "D2 commit unverified": Scenario(commit_unverified, "commits differ", log_entries=10),
    "D3 reply of an earlier term": Scenario(reply_of_earlier_term, "commit without majority"),
    "D14 back up": Scenario(back_up, "not converged"),
    "D15 poisoned command": Scenario(poisoned_command, "stuck", mended=("node",)),
    "D16 raising callback": Scenario(raising_callback, "applied twice", mended=("node",)),
    "reply of an earlier life": Scenario(reply_of_earlier_life, None),
    "snapshot reply lost": Scenario(snapshot_reply_lost, None, log_entries=10),
    "all members restart": Scenario(all_members_restart, None, mended=("node",)),
    "joins by a list that fails": Scenario(joins_by_a_list_that_fails, None),
    "restarts with a list that failed": Scenario(restarts_with_a_list_that_failed, None, mended=("node",)),
    "vote for an unknown member": Scenario(vote_for_unknown_member, None),
}
