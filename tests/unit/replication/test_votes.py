"""Term and vote are saved once, before any message leaves; if that takes long, a candidate waits longer for the others.

Time in which a member stalled does not count.
"""

from __future__ import annotations

import random
from typing import Any

import pytest
from pysyncobj import syncobj as library
from pysyncobj.transport import Transport

from lmqcluster.replication.base.membership import PeerNode
from lmqcluster.replication.base.settings import RaftSettings
from lmqcluster.replication.raft.core import VOTES_TAKE, VOTES_WAIT_S_MAX, RaftCore
from lmqcluster.replication.storage.journal.journal import MemoryJournal

MEMBERS = {"a": "h:1", "b": "h:2", "c": "h:3"}
B, C = PeerNode("b", "h:2"), PeerNode("c", "h:3")
SETTINGS = RaftSettings()


class Clock:
    """A clock that advances only while a vote is saved, or when the test says so."""

    def __init__(self) -> None:
        self.now_s = 1000.0


class SlowStore:
    """A disk that takes time to save a vote."""

    def __init__(self, clock: Clock, save_s: float) -> None:
        self.term = 1
        self.vote: str | None = None
        self.saved: list[tuple[int, str | None]] = []
        self._clock = clock
        self._save_s = save_s

    def save_vote(self, term: int, vote: str | None) -> None:
        self._clock.now_s += self._save_s
        self.saved.append((term, vote))
        self.term, self.vote = term, vote


class Sent(Transport):
    """Messages that would leave."""

    ready = True

    def __init__(self) -> None:
        super().__init__(None, None, [])
        self.messages: list[tuple[str, dict[str, Any]]] = []

    def addNode(self, node: PeerNode) -> None:  # noqa: N802 - the library's name
        """Do nothing: every node is reachable."""

    def send(self, node: PeerNode, message: dict[str, Any]) -> bool:
        self.messages.append((str(node.id), message))
        return True

    def kinds(self) -> list[str]:
        return [message["type"] for _, message in self.messages]


class Member:
    """The Raft core of node a."""

    def __init__(self, clock: Clock, save_s: float, *, recovering: bool = False) -> None:
        self.clock = clock
        self.store = SlowStore(clock, save_s)
        self.sent = Sent()
        unused: Any = None
        self.core = RaftCore(
            "a",
            MEMBERS,
            self.sent,
            MemoryJournal(self.store, b"\x01"),
            apply=lambda _index, _command: True,
            snapshots=unused,
            settings=SETTINGS,
            rng=random.Random(1),
            recovering=recovering,
        )
        for node in (B, C):
            self.sent._onNodeConnected(node)

    def campaign(self) -> None:
        """Start an election without a leader, in which b votes for this node."""
        self.clock.now_s += SETTINGS.election_max_s + 0.001
        self.core.doTick()
        number = next(message["round"] for _, message in self.sent.messages if message["type"] == "pre_vote")
        granted = {"type": "pre_vote_reply", "term": 1, "round": number, "granted": True, "stranger": False}
        self.core.receive(B, granted)
        begun_s = self.clock.now_s
        self.core.doTick()
        # Its steps do this; the delay granted for the vote is not granted again.
        self.core.on_event_loop_stall(self.clock.now_s - begun_s)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(library, "monotonicTime", lambda: clock.now_s)
    return clock


def ask(term: int) -> dict[str, Any]:
    return {"type": "request_vote", "term": term, "last_log_index": 1, "last_log_term": 0}


def test_a_vote_in_a_new_term_is_saved_once(clock: Clock) -> None:
    member = Member(clock, save_s=0.0)
    member.core.receive(B, ask(term=5))
    assert member.store.saved == [(5, "b")]
    assert member.sent.kinds()[-1] == "response_vote"
    member.core.receive(C, ask(term=5))
    member.core.receive(B, ask(term=4))
    assert member.store.saved == [(5, "b")]
    assert member.sent.kinds().count("response_vote") == 1


def test_a_newer_term_is_saved_without_a_vote(clock: Clock) -> None:
    member = Member(clock, save_s=0.0)
    member.core.receive(B, {**ask(term=5), "last_log_index": 0})
    assert member.store.saved == [(5, None)]


def test_a_campaign_is_saved_once_with_its_vote(clock: Clock) -> None:
    member = Member(clock, save_s=0.0)
    member.campaign()
    assert member.store.saved == [(2, "a")]
    assert member.sent.kinds().count("request_vote") == 2


def wait_s(save_s: float) -> float:
    """Return how much longer than the election timeout a candidate waits."""
    return min(VOTES_TAKE * save_s, VOTES_WAIT_S_MAX)


@pytest.mark.parametrize("save_s", [0.0, 0.01, 2.0, 60.0])
def test_a_candidate_waits_for_votes_as_long_as_they_may_take_to_save(clock: Clock, save_s: float) -> None:
    member = Member(clock, save_s)
    member.campaign()
    clock.now_s += SETTINGS.election_min_s + wait_s(save_s) - 0.001
    member.core.doTick()
    assert member.core.role() == "candidate"
    assert member.sent.kinds().count("pre_vote") == 2
    member.core.receive(B, {"type": "response_vote", "term": 2})
    assert member.core.role() == "leader"
    assert member.store.saved == [(2, "a")]


@pytest.mark.parametrize("save_s", [0.0, 2.0, 60.0])
def test_it_campaigns_again_after_that_time(clock: Clock, save_s: float) -> None:
    member = Member(clock, save_s)
    member.campaign()
    clock.now_s += SETTINGS.election_max_s + wait_s(save_s) + 0.001
    member.core.doTick()
    assert member.sent.kinds().count("pre_vote") == 4


def follow(member: Member) -> None:
    """Make b the leader."""
    entries = {"type": "append_entries", "term": 1, "seq": 1, "commit_index": 1, "prevLogIdx": 1, "prevLogTerm": 0}
    member.core.receive(B, {**entries, "entries": [], "last": 1})


def pre_vote(term: int) -> dict[str, Any]:
    return {"type": "pre_vote", "term": term, "round": 1, "last_log_index": 1, "last_log_term": 0}


@pytest.mark.parametrize("recovering", [False, True])
def test_a_member_that_has_forgotten_something_grants_no_pre_vote(clock: Clock, recovering: bool) -> None:
    """It does not vote, so an election that counts on it would only disturb the term."""
    member = Member(clock, save_s=0.0, recovering=recovering)
    member.core.receive(B, pre_vote(term=1))
    assert [message["granted"] for _, message in member.sent.messages] == [not recovering]
    member.core.receive(B, ask(term=2))
    assert member.sent.kinds().count("response_vote") == (not recovering)


@pytest.mark.parametrize("still_s", [0.3, 1.5, 60.0])
def test_a_stalled_follower_listens_before_it_campaigns(clock: Clock, still_s: float) -> None:
    member = Member(clock, save_s=0.0)
    follow(member)
    member.sent.messages.clear()
    clock.now_s += still_s
    member.core.on_event_loop_stall(still_s)
    member.core.receive(C, pre_vote(term=1))
    assert [message["granted"] for _, message in member.sent.messages] == [False]
    clock.now_s += SETTINGS.election_min_s - 0.001
    member.core.doTick()
    assert member.sent.kinds().count("pre_vote") == 0
    clock.now_s += SETTINGS.election_max_s
    member.core.doTick()
    assert member.sent.kinds().count("pre_vote") == 2


@pytest.mark.parametrize("still_s", [0.3, 1.5, 60.0])
def test_a_stalled_leader_listens_before_it_steps_down(clock: Clock, still_s: float) -> None:
    member = Member(clock, save_s=0.0)
    member.campaign()
    member.core.receive(B, {"type": "response_vote", "term": 2})
    clock.now_s += still_s
    member.core.on_event_loop_stall(still_s)
    clock.now_s += SETTINGS.quorum_lost_s - 0.001
    member.core.doTick()
    assert member.core.role() == "leader"
    clock.now_s += 0.002
    member.core.doTick()
    assert member.core.role() == "follower"


@pytest.mark.parametrize("still_s", [0.3, 60.0])
def test_a_leader_heard_since_is_not_trusted_for_longer(clock: Clock, still_s: float) -> None:
    """Heartbeats may arrive before the stall is noted. The leader may be lost right after them."""
    member = Member(clock, save_s=0.0)
    follow(member)
    clock.now_s += still_s
    assert member.core.heard_leader(B, 1)
    member.core.on_event_loop_stall(still_s)
    member.sent.messages.clear()
    clock.now_s += SETTINGS.election_min_s + 0.001
    member.core.receive(C, pre_vote(term=1))
    assert [message["granted"] for _, message in member.sent.messages] == [True]
    clock.now_s += SETTINGS.election_max_s - SETTINGS.election_min_s
    member.core.doTick()
    assert member.sent.kinds().count("pre_vote") == 2


@pytest.mark.parametrize("still_s", [0.3, 60.0])
def test_a_leader_does_not_trust_a_follower_heard_since_for_longer(clock: Clock, still_s: float) -> None:
    member = Member(clock, save_s=0.0)
    member.campaign()
    member.core.receive(B, {"type": "response_vote", "term": 2})
    clock.now_s += still_s
    member.core.heard_follower(B, 2)
    member.core.on_event_loop_stall(still_s)
    clock.now_s += SETTINGS.quorum_lost_s + 0.001
    member.core.doTick()
    assert member.core.role() == "follower"
