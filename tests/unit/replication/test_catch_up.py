"""The recovery of a restarted node, the members at an index of the log, and learners."""

from __future__ import annotations

from typing import Any

import pytest
from pysyncobj import syncobj as library
from pysyncobj.transport import Transport

from lmqcluster.replication.base.membership import MEMBERSHIP, PeerNode, encode_change
from lmqcluster.replication.base.settings import RaftSettings
from lmqcluster.replication.raft.catch_up import CatchUp, Recovery
from lmqcluster.replication.raft.learners import Learners
from lmqcluster.replication.raft.log_sender import LogSender
from lmqcluster.replication.raft.member_history import MemberHistory
from lmqcluster.replication.storage.journal.journal import MemoryJournal

A, B = PeerNode("a", "h:1"), PeerNode("b", "h:2")


def test_a_node_that_forgot_entries_waits_for_the_log_of_the_first_contact() -> None:
    recovery = Recovery(recovering=True, forgetful=False)
    recovery.meet(A, 3, 10)
    # The log grows, but only the entries at the first contact can have been acknowledged.
    recovery.meet(A, 3, 20)
    recovery.holds(9, 9)
    assert recovery.is_recovering
    recovery.holds(10, 4)
    assert not recovery.is_recovering


def test_another_leader_or_term_is_a_first_contact_again() -> None:
    for leader, term in ((B, 3), (A, 4)):
        recovery = Recovery(recovering=True, forgetful=False)
        recovery.meet(A, 3, 10)
        recovery.meet(leader, term, 20)
        recovery.holds(19, 19)
        assert recovery.is_recovering
        recovery.holds(20, 20)
        assert not recovery.is_recovering


def test_a_node_that_may_have_forgotten_its_vote_waits_for_an_entry_committed_without_it() -> None:
    recovery = Recovery(recovering=False, forgetful=True)
    assert recovery.is_recovering
    recovery.meet(A, 3, 10)
    recovery.holds(20, 10)
    assert recovery.is_forgetful
    recovery.holds(20, 11)
    assert not recovery.is_forgetful
    assert not recovery.is_recovering


def test_a_node_that_forgot_nothing_never_waits() -> None:
    recovery = Recovery(recovering=False, forgetful=False)
    recovery.meet(A, 3, 10)
    assert not recovery.is_recovering


def test_a_node_that_has_caught_up_once_stays_caught_up() -> None:
    catch_up = CatchUp()
    catch_up.applied(100)
    assert not catch_up.is_done
    catch_up.meet(A, 3, 10)
    catch_up.meet(A, 3, 20)
    catch_up.applied(9)
    assert (catch_up.is_done, catch_up.target) == (False, 10)
    catch_up.applied(10)
    catch_up.meet(B, 4, 50)
    assert (catch_up.is_done, catch_up.target) == (True, 10)


def test_a_leader_has_caught_up_with_its_own_first_entry() -> None:
    catch_up = CatchUp()
    catch_up.meet(A, 3, 10)
    catch_up.lead(12)
    catch_up.applied(11)
    assert not catch_up.is_done
    catch_up.applied(12)
    assert catch_up.is_done


class NoTerms:
    """The store of term and vote."""

    term = 1
    vote: str | None = None

    def save_vote(self, term: int, vote: str | None) -> None:
        raise AssertionError("nothing votes here")


def journal_with(*changes: tuple[str, str, str]) -> MemoryJournal:
    """Return a log with one membership entry per index, from 2 on."""
    journal = MemoryJournal(NoTerms(), b"\x01")
    for index, change in enumerate(changes, start=2):
        journal.add(bytes([MEMBERSHIP]) + encode_change(*change), index, 1)
    return journal


def test_the_members_at_each_index_of_the_log() -> None:
    journal = journal_with(("add", "b", "h:2"), ("add", "b", "h:9"), ("rem", "a", ""))
    history = MemberHistory(journal, {"a": "h:1"})
    each = [{"a": "h:1"}, {"a": "h:1", "b": "h:2"}, {"a": "h:1", "b": "h:9"}, {"b": "h:9"}]
    assert [history.at(index) for index in (1, 2, 3, 4)] == each
    history.drop_before(3)
    assert [history.at(index) for index in (3, 4)] == each[2:]
    journal.truncate_from(4)
    assert history.at(3) == each[2]
    journal.reset(40, 2)
    history.begin({"c": "h:3"})
    assert history.at(40) == {"c": "h:3"}


class Dials(Transport):
    """The nodes that are dialled."""

    def __init__(self) -> None:
        super().__init__(None, None, [])
        self.nodes: set[PeerNode] = set()

    def addNode(self, node: PeerNode) -> None:  # noqa: N802 - the library's name
        self.nodes.add(node)

    def dropNode(self, node: PeerNode) -> None:  # noqa: N802
        self.nodes.remove(node)


def learners_of(dials: Dials, voters: set[PeerNode], matches: dict[PeerNode, int]) -> Learners:
    unused: Any = None
    sender = LogSender(unused, dials, journal_with(), unused, RaftSettings(), set())
    return Learners(dials, sender, voters, matches, patience_s=5.0)


def test_a_learner_is_dropped_when_its_join_is_abandoned(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(library, "monotonicTime", lambda: now)
    dials, matches = Dials(), {A: 7, B: 3}
    learners = learners_of(dials, {B}, matches)
    learners.ask(A)
    learners.ask(B)
    assert learners.nodes == dials.nodes == {A}
    assert (learners.match_index(A), learners.match_index(B)) == (7, 0)
    now = 103.0
    learners.ask(A)
    now = 108.0
    learners.drop_expired()
    assert learners.nodes == {A}
    now = 108.1
    learners.drop_expired()
    assert learners.nodes == dials.nodes == set()
    assert matches == {B: 3}


def test_a_learner_that_became_a_member_is_not_dropped() -> None:
    voters: set[PeerNode] = set()
    dials, matches = Dials(), {A: 7}
    learners = learners_of(dials, voters, matches)
    learners.ask(A)
    voters.add(A)
    learners.drop_all()
    assert not learners.nodes
    assert dials.nodes == {A}
    assert matches == {A: 7}
