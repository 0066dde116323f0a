"""Scripted runs for what random ones rarely reach: each violates a guarantee if one of our own rules is switched off.

They use internals of our Raft core, so stock PySyncObj is not compared.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from lmqcluster.replication.base.membership import PeerNode
from lmqcluster.replication.storage.node_storage import PAGES, SNAPSHOTS
from tests.simulation.stage import FAST_S, Scenario, Stage

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.host import Host
    from tests.simulation.interfaces import Subject

__all__ = ["OWN_SCENARIOS"]

FLOOD_CHUNKS_MAX = 360
"""The number of chunks that a batch makes of two groups of 512 messages, and a few that wait for the disk."""


def back_up_a_long_term(subject: Subject) -> set[str]:
    """D14: hundreds of divergent entries of one term cost one round trip, not one each."""
    stage = Stage(subject, 3)
    with stage.simulation.world():
        old, others = stage.elect()
        stage.cut([old], others)
        stage.propose(old, 300, size_bytes=20)
        stage.run_for(6.0)
        second = stage.leader()
        stage.propose(second, 320, size_bytes=20)
        stage.run_for(2.0)
        for one, other in ((second, old), (old, second)):
            stage.network.slow(one.id, other.id, (0.08, 0.08))
        stage.join_all()
        stage.run_for(10.0)
        behind = old.replica.journal.view.last + 20 < second.replica.journal.view.last
        return ({"not converged"} if behind else set()) | stage.finish()


def snapshot_refused(subject: Subject) -> set[str]:
    """D4: a snapshot that turns out damaged when it is installed has not been installed."""
    stage = Stage(subject, 3)
    with stage.simulation.world():
        leader, (follower, other) = stage.elect()
        stage.cut([follower], [leader, other])
        for _ in range(30):
            stage.propose(leader, 3)
            stage.run_for(0.05)
        snapshots = follower.replica._snapshots
        install = snapshots.install

        refused: list[Any] = []

        def refuse(receiver: Any, _source: Any, loaded: Callable[[Any], bool]) -> None:
            refused.append(receiver)
            loaded(None)

        snapshots.install = refuse
        stage.join_all()
        stage.run_for(3.0)
        assert refused, "a snapshot came"
        snapshots.install = install
        return stage.finish()


def snapshot_behind_the_log(subject: Subject) -> set[str]:
    """D5: a snapshot that arrives late must not replace the longer log that a follower has acknowledged since."""
    stage = Stage(subject, 3)
    with stage.simulation.world():
        leader, (behind, other) = stage.elect()
        stage.propose(leader, 10)
        stage.run_for(1.0)
        for follower, delay_s in ((behind, 0.3), (other, 0.1)):
            stage.network.slow(leader.id, follower.id, (delay_s, delay_s))
        stage.network.slow(behind.id, leader.id, (0.3, 0.3))
        before = leader.replica.commit_index
        stage.propose(leader, 5)
        stage.run_for(0.05)
        stage.propose(leader, 5)
        while leader.replica.commit_index == before:
            stage.run_for(0.001)
        stage.cut([other], [leader, behind])
        leader.input(leader.replica.take_snapshot)
        while behind.replica.journal.view.last < leader.replica.journal.view.last:
            stage.run_for(0.001)
        assert behind.replica.commit_index < leader.replica.core._snapshots.latest().index
        for message in _snapshot_messages(leader):
            behind.input(behind.replica.core._on_snapshot, PeerNode(leader.id, leader.id), message)
        stage.run_for(2.0)
        for one, another in ((leader, behind), (behind, leader), (leader, other)):
            stage.network.slow(one.id, another.id, FAST_S)
        stage.join_all()
        return stage.finish()


def _snapshot_messages(leader: Host) -> list[dict[str, Any]]:
    """Return the messages in which the leader sends its latest snapshot."""
    core = leader.replica.core
    info = core._snapshots.latest()
    return [
        {
            "type": "snapshot",
            "term": core.term(),
            "seq": 0,
            "index": info.index,
            "index_term": info.term,
            "number": number,
            "count": info.blocks,
            "last": leader.replica.journal.last_index,
            "data": core._snapshots._store.read_block(info, number),
        }
        for number in range(info.blocks)
    ]


def candidate_cut_off(subject: Subject) -> set[str]:
    """D22: a node whose campaign reached no peer has a newer term than the leader, which must learn of it."""
    stage = Stage(subject, 3)
    with stage.simulation.world():
        leader, (candidate, other) = stage.elect()
        stage.cut([candidate], [leader, other])
        stage.run_for(1.0)
        # It won its pre-votes; then the link broke.
        candidate.input(candidate.replica.core._SyncObj__setCurrentTerm, leader.replica.term + 3, candidate.id)
        stage.run_for(1.0)
        stage.join_all()
        return stage.finish()


def deaf_follower(subject: Subject) -> set[str]:
    """D23: a follower that misses the leader's messages for a while, but can still send, must not unseat it."""
    stage = Stage(subject, 3)
    with stage.simulation.world():
        leader, (deaf, _) = stage.elect()
        term = leader.replica.term
        for _ in range(3):
            stage.network.block(leader.id, deaf.id)
            stage.run_for(3.0)
            stage.network.unblock(leader.id, deaf.id)
            stage.run_for(3.0)
        disturbed = not leader.replica.is_leader or leader.replica.term != term
        return ({"leader disturbed"} if disturbed else set()) | stage.finish()


def joiner_that_cannot_catch_up(subject: Subject) -> set[str]:
    """Learners: a node that receives nothing must not count, or the cluster, which lacks a member, loses its
    majority.
    """
    stage = Stage(subject, 3, spares=1)
    with stage.simulation.world():
        leader, (dead, other) = stage.elect()
        dead.kill()
        joiner = stage.simulation.hosts["n4"]
        joiner.start(stage.simulation.members, joining=True)
        for _ in range(10):
            leader.input(leader.replica.admit, joiner.id)
            for host in (leader, other):
                stage.network.block(host.id, joiner.id)
            stage.run_for(0.3)
        acknowledged = len(stage.simulation.checkers.acknowledged)
        stage.propose(leader, 3)
        stage.run_for(2.0)
        stands = len(stage.simulation.checkers.acknowledged) < acknowledged + 3
        for host in (leader, other):
            stage.network.unblock(host.id, joiner.id)
        stage.simulation.revive(dead)
        return ({"no progress"} if stands else set()) | stage.finish()


def founders_that_differ(subject: Subject) -> set[str]:
    """Founding members with different lists: a node that counts in two clusters must not help to found either."""
    stage = Stage(subject, 3, spares=1)
    simulation = stage.simulation
    with simulation.world():
        members = list(simulation.members)
        for name in members:
            simulation.hosts[name].start([*members, "n4"] if name == "n3" else members)
        stage.run_for(8.0)
        founded = any(host.replica is not None and host.replica.is_leader for host in simulation.hosts.values())
        found = {violation.kind for violation in simulation.checkers.violations}
        return found | ({"founded by some"} if founded else set())


def two_changes_at_once(subject: Subject) -> set[str]:
    """D24: two nodes added at once could commit with two majorities that have no member in common."""
    stage = Stage(subject, 3, spares=2)
    with stage.simulation.world():
        leader, others = stage.elect()
        added = [stage.simulation.hosts[name] for name in ("n4", "n5")]
        for host in added:
            host.start(stage.simulation.members, joining=True)
        for host in added:
            leader.input(leader.replica.learn_only, host.id)
        stage.run_for(2.0)
        # Both additions reach the new nodes only; the others elect a leader by the old list.
        stage.cut([leader, *added], others)
        for host in added:
            leader.input(leader.replica.change_members, True, host.id)
        stage.run_for(0.3)
        stage.propose(leader, 3)
        for host in others:
            stage.propose(host, 3)
        stage.run_for(6.0)
        for host in others:
            stage.propose(host, 3)
        stage.run_for(2.0)
        stage.join_all()
        return stage.finish()


def disk_lost_behind_a_stale_leader(subject: Subject) -> set[str]:
    """A member that has lost its disk, with its term and vote, meets a leader that does not know yet that it was
    deposed.

    The stale leader must not count its replies: the real leader lacks the newest entries of the stale one, and its next
    ones.
    """
    kinds: set[str] = set()
    for uncommitted in (3, 0):
        kinds |= _disk_lost_behind_a_stale_leader(subject, uncommitted)
    return kinds


def _disk_lost_behind_a_stale_leader(subject: Subject, uncommitted: int) -> set[str]:
    # No guarantee may depend on how soon a leader notices that it was deposed.
    subject._settings = dataclasses.replace(subject._settings, quorum_lost_s=5.0)  # type: ignore[attr-defined]
    stage = Stage(subject, 3)
    with stage.simulation.world():
        stale, (one, other) = stage.elect()
        stage.propose(stale, 5)
        stage.run_for(1.0)
        stage.network.break_off(stale.id, one.id, notice_s=(0.0, 0.0))
        stage.network.break_off(stale.id, other.id, notice_s=(0.0, 0.0))
        stage.cut([stale], [one, other])
        stage.propose(stale, uncommitted)
        while not any(host.replica.is_leader for host in (one, other)):
            stage.run_for(0.001)
        real, lost = (one, other) if one.replica.is_leader else (other, one)
        stage.propose(real, 3)
        stage.run_for(0.03)
        stage.cut([real], [lost])
        lost.kill()
        lost.lose_disk()
        lost.start(stage.simulation.members)
        stage.network.join(stale.id, lost.id)
        for _ in range(40):
            stage.run_for(0.02)
            met = lost.replica.commit_index == stale.replica.commit_index
            if met and stale.replica.is_leader:
                stage.propose(stale, 1)
        stage.run_for(1.0)
        stage.join_all()
        return stage.finish()


def follower_lost_in_transfer(subject: Subject) -> set[str]:
    """A follower that dies while it receives a snapshot must not prevent the compaction of the leader's log."""
    stage = Stage(subject, 3)
    with stage.simulation.world():
        leader, (follower, other) = stage.elect()
        stage.cut([follower], [leader, other])
        for _ in range(30):
            stage.propose(leader, 3)
            stage.run_for(0.05)
        stage.network.slow(leader.id, follower.id, (0.5, 0.5))
        stage.join_all()
        while not leader.replica.core.snapshots_in_use():
            stage.run_for(0.01)
        follower.kill()
        for _ in range(100):
            stage.propose(leader, 3)
            stage.run_for(0.05)
        log = leader.replica.journal.view
        kinds = {"log not cut"} if log.last - log.first > 150 else set()
        stage.network.slow(leader.id, follower.id, FAST_S)
        stage.simulation.revive(follower)
        return kinds | stage.finish()


def snapshot_under_load(subject: Subject) -> set[str]:
    """A follower that needs a snapshot gets one that the log continues, and catches up, however long the
    snapshot takes.
    """
    stage = Stage(subject, 3)
    with stage.simulation.world():
        leader, (follower, other) = stage.elect()
        well, leader.disk_s = leader.disk_s, (0.5, 1.0)
        stage.cut([follower], [leader, other])
        for _ in range(20):
            stage.propose(leader, 10)
            stage.run_for(0.05)
        stage.join_all()
        for _ in range(300):
            stage.propose(leader, 10)
            stage.run_for(0.05)
        behind = follower.replica.journal.view.last + 20 < leader.replica.journal.view.last
        taken = leader.replica.node.replica.snapshots.taken_total
        # A disk this slow delays the application of entries on the leader.
        leader.disk_s = well
        kinds = {"not caught up"} if behind else set()
        return kinds | ({"useless snapshots"} if taken > 2 else set()) | stage.finish()


def flood_on_a_slow_disk(subject: Subject) -> set[str]:
    """Messages that arrive faster than a node's disk takes them do not fill its memory, and cost the leader nothing."""
    stage = Stage(subject, 3)
    with stage.simulation.world():
        leader, _followers = stage.elect()
        well, leader.disk_s = leader.disk_s, (0.2, 0.4)
        term, most = leader.replica.core.term(), 0
        for _ in range(200):
            stage.propose(leader, 10)
            stage.run_for(0.05)
            pager = leader.replica.node.replica.machine.state.pager
            most = max(most, len(pager) - pager.pages_total)
        leader.disk_s = well
        kinds = {"memory full"} if most > FLOOD_CHUNKS_MAX else set()
        return kinds | ({"deposed"} if leader.replica.core.term() != term else set()) | stage.finish()


def flood_on_a_full_disk(subject: Subject) -> set[str]:
    """A disk that takes no pages does not block a node forever: what it cannot take stays in memory."""
    stage = Stage(subject, 3)
    with stage.simulation.world():
        leader, _followers = stage.elect()
        leader.disks[PAGES].full = True
        for _ in range(100):
            stage.propose(leader, 10)
            stage.run_for(0.05)
        stage.run_for(2.0)
        core = leader.replica.core
        kinds = {"no progress"} if core.applied_index() < core.commit_index() - 5 else set()
        leader.disks[PAGES].full = False
        return kinds | stage.finish()


def damaged_snapshot(subject: Subject) -> set[str]:
    """D18: a node with a damaged snapshot does not start without it, but gets everything from its peers.

    This is repeated: if the leader has just compacted its log, the node gets a snapshot in any case.
    """
    stage = Stage(subject, 3)
    with stage.simulation.world():
        leader, (follower, _) = stage.elect()
        for _ in range(4):
            for _ in range(25):
                stage.propose(leader, 2)
                stage.run_for(0.05)
            follower.kill()
            disk = follower.disks[SNAPSHOTS]
            for name in disk.names():
                disk.truncate(name, follower.rng)
            follower.harmed = follower.may_forget = follower.lacking = True
            stage.simulation.revive(follower)
            stage.run_for(2.0)
        stage.run_for(3.0)
        return stage.finish()


def power_of_all_in_process(subject: Subject) -> set[str]:
    """Durability process: after a power failure of all, delivery numbers may repeat, but not under the same salt."""
    stage = Stage(subject, 3)
    with stage.simulation.world():
        leader, others = stage.elect()
        stage.propose(leader, 10)
        stage.run_for(2.0)
        hosts = [leader, *others]
        first = _salts(hosts)
        # A member that is alone recovers what it has forgotten.
        others[0].kill(power=True)
        stage.simulation.revive(others[0])
        stage.run_for(5.0)
        second = _salts(hosts)
        for host in hosts:
            host.kill(power=True)
        stage.simulation.begin_again()
        for host in hosts:
            stage.simulation.revive(host)
        stage.run_for(8.0)
        third = _salts(hosts)
        kinds = {"salt renewed in vain"} if second != first else set()
        if len(third) != 1 or third == first:
            kinds.add("salt not renewed")
        # Other losses are not judged: the checkers take a new beginning for one without any logs.
        return kinds


def _salts(hosts: list[Host]) -> set[bytes]:
    return {host.replica.node.replica.machine.state.salt for host in hosts}


OWN_SCENARIOS = {
    "D18 damaged snapshot": Scenario(damaged_snapshot, None, log_entries=10, durability="disk"),
    "power of all in process": Scenario(
        power_of_all_in_process, None, mended=("node",), log_entries=20, durability="process"
    ),
    "snapshot under load": Scenario(snapshot_under_load, None, mended=("node",), log_entries=10),
    "flood on a slow disk": Scenario(flood_on_a_slow_disk, None, mended=("node",)),
    "flood on a full disk": Scenario(flood_on_a_full_disk, None, mended=("node",)),
    "follower lost in transfer": Scenario(follower_lost_in_transfer, None, log_entries=10),
    "D14 a long term": Scenario(back_up_a_long_term, None, mended=("core",)),
    "D4 snapshot refused": Scenario(snapshot_refused, None, mended=("core",), log_entries=10),
    "D5 snapshot behind the log": Scenario(snapshot_behind_the_log, None, mended=("core",)),
    "D22 candidate cut off": Scenario(candidate_cut_off, None),
    "D23 deaf follower": Scenario(deaf_follower, None),
    "founders that differ": Scenario(founders_that_differ, None, mended=("node",)),
    "D24 two changes at once": Scenario(two_changes_at_once, None),
    "learner that cannot catch up": Scenario(joiner_that_cannot_catch_up, None, durability="disk"),
    "disk lost behind a stale leader": Scenario(
        disk_lost_behind_a_stale_leader, None, mended=("core",), durability="disk"
    ),
}
