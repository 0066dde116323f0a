"""Scripted runs in which pages are damaged that this node or another one needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lmqcluster.replication.storage.node_storage import PAGES
from tests.simulation.stage import Scenario, Stage

if TYPE_CHECKING:
    from tests.simulation.host import Host
    from tests.simulation.interfaces import Subject

__all__ = ["PAGE_SCENARIOS"]

MESSAGES = 60
"""Enough messages that damaged pages are still needed."""


def page_damaged_in_use(subject: Subject) -> set[str]:
    """Flip bits in the pages of running nodes, one node after the other: each continues with the pages of the
    others.
    """
    stage = Stage(subject, 3)
    with stage.simulation.world():
        leader, followers = stage.elect()
        stage.propose(leader, MESSAGES)
        stage.run_for(1.0)
        for host in (followers[0], leader):
            _damage_pages(host)
            stage.run_for(3.0)
        return _stopped(stage) | stage.finish()


def page_left_behind(subject: Subject) -> set[str]:
    """A returning node needs pages that are damaged there and that the others no longer need: it gets a newer state."""
    stage = Stage(subject, 3)
    with stage.simulation.world():
        leader, (away, other) = stage.elect()
        stage.propose(leader, MESSAGES)
        stage.run_for(1.0)
        stage.cut([away], [leader, other])
        _leave_behind(stage, [leader, other])
        assert _pages(away) - _pages(leader) - _pages(other)
        _damage_pages(away)
        stage.join_all()
        stage.run_for(5.0)
        return _stopped(stage) | stage.finish()


def newer_state_refused(subject: Subject) -> set[str]:
    """A newer state that was requested is no longer needed once it is loaded: it leaves nothing behind."""
    stage = Stage(subject, 3)
    with stage.simulation.world():
        leader, (away, other) = stage.elect()
        stage.propose(leader, MESSAGES)
        stage.run_for(1.0)
        stage.cut([away], [leader, other])
        _leave_behind(stage, [leader, other])
        _damage_pages(away)
        stage.join_all()
        core, requests = away.replica.core, away.replica.node.replica.page_supply._requests
        deadline_s = stage.simulation.clock.now + 30.0
        while not (core.needs_snapshot and core.is_installing()):
            assert stage.simulation.clock.now < deadline_s
            stage.run_for(0.0005)
        # Simulates the arrival of the pages.
        in_vain = requests._in_vain
        requests.end()
        while core.is_installing():
            stage.run_for(0.0005)
        requests.begin(in_vain)
        stage.run_for(5.0)
        return _stopped(stage) | stage.finish()


def page_missing_at_the_start(subject: Subject) -> set[str]:
    """Repeat this with a node that starts without a page that its snapshot names."""
    stage = Stage(subject, 3)
    with stage.simulation.world():
        leader, (away, other) = stage.elect()
        stage.propose(leader, MESSAGES)
        stage.run_for(1.0)
        away.input(away.replica.take_snapshot)
        stage.run_for(0.5)
        named = sorted(_pages(away))
        away.kill()
        _leave_behind(stage, [leader, other])
        for name in named:
            away.disks[PAGES].lose(name)
        away.harmed = away.lacking = True
        stage.simulation.revive(away)
        stage.run_for(5.0)
        return ({"stopped for a page"} if away.life != 2 else set()) | stage.finish()


def page_of_a_snapshot_that_no_member_has(subject: Subject) -> set[str]:
    """A leader's snapshot names pages that are damaged there and missing elsewhere: a joining node gets a new
    snapshot.
    """
    stage = Stage(subject, 3, spares=1)
    with stage.simulation.world():
        leader, others = stage.elect()
        stage.propose(leader, MESSAGES)
        stage.run_for(1.0)
        leader.input(leader.replica.take_snapshot)
        stage.run_for(0.5)
        _leave_behind(stage, others)
        _damage_pages(leader)
        joiner = stage.simulation.hosts["n4"]
        joiner.start(stage.simulation.members, joining=True)
        for _ in range(40):
            if joiner.id in leader.replica.members:
                break
            leader.input(leader.replica.admit, joiner.id)
            stage.run_for(0.5)
        else:
            return {"not caught up"}
        return _stopped(stage) | stage.finish()


def _pages(host: Host) -> set[str]:
    return set(host.disks[PAGES].names())


def _damage_pages(host: Host) -> None:
    """Flip a bit of each page file."""
    assert _pages(host)
    for name in sorted(_pages(host)):
        host.disks[PAGES].flip_bit(name, host.rng)
    host.harmed = True


def _leave_behind(stage: Stage, hosts: list[Host]) -> None:
    """Consume enough messages that no page is needed, and take snapshots that name none."""
    # Clients that stop answering pull the same messages again and again.
    deadline_s = stage.simulation.clock.now + 600.0
    while any(set(host.replica.node.replica.machine.state.pager.pages()) for host in hosts):
        assert stage.simulation.clock.now < deadline_s
        stage.run_for(1.0)
    for host in hosts:
        host.input(host.replica.take_snapshot)
    stage.run_for(1.0)


def _stopped(stage: Stage) -> set[str]:
    return {"stopped for a page"} if any(host.life > 1 for host in stage.simulation.hosts.values()) else set()


PAGE_SCENARIOS = {
    name: Scenario(script, None, mended=("node",), durability="disk")
    for name, script in (
        ("page damaged in use", page_damaged_in_use),
        ("page left behind", page_left_behind),
        ("newer state refused", newer_state_refused),
        ("page missing at the start", page_missing_at_the_start),
        ("page of a snapshot that no member has", page_of_a_snapshot_that_no_member_has),
    )
}
