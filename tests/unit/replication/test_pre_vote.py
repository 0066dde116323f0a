"""Pre-vote rounds, and the answers of a node that hears from a leader."""

from __future__ import annotations

import random

import pytest
from pysyncobj import syncobj as library

from lmqcluster.replication.base.settings import RaftSettings
from lmqcluster.replication.raft.pre_vote import PreVote

SETTINGS = RaftSettings(election_min_s=0.6, leader_lost_max_s=0.4)


class Clock:
    """The library's clock."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(library, "monotonicTime", clock)
    return clock


@pytest.fixture
def votes(clock: Clock) -> PreVote:
    assert clock.now_s
    return PreVote(SETTINGS, random.Random(1))


@pytest.mark.parametrize(("members", "needed"), [(1, 0), (2, 1), (3, 1), (4, 2), (5, 2), (6, 3), (7, 3)])
def test_a_majority_wins(votes: PreVote, members: int, needed: int) -> None:
    """The node's own vote counts."""
    number = votes.begin()
    for count in range(members):
        assert votes.won(members) == (count >= needed)
        votes.granted(f"n{count}", number)


def test_a_vote_counts_once(votes: PreVote) -> None:
    number = votes.begin()
    for _ in range(5):
        votes.granted("b", number)
    assert not votes.won(5)


def test_votes_of_an_earlier_round_do_not_count(votes: PreVote) -> None:
    """A late answer describes an outdated state."""
    first = votes.begin()
    votes.granted("b", first)
    second = votes.begin()
    assert second != first
    assert not votes.won(3)
    votes.granted("b", first)
    assert not votes.won(3)
    votes.granted("b", second)
    assert votes.won(3)


@pytest.mark.parametrize("end", ["end", "leader_heard"])
def test_a_round_ends(votes: PreVote, end: str) -> None:
    """It ends with the election, or when a leader appears."""
    votes.granted("b", votes.begin())
    getattr(votes, end)()
    assert not votes.won(3)


def test_rounds_pause_for_a_random_time(votes: PreVote, clock: Clock) -> None:
    """Otherwise two nodes could ask in lockstep forever."""
    assert votes.is_due()
    pauses = set()
    for _ in range(50):
        begun_s = clock.now_s
        votes.begin()
        while not votes.is_due():
            clock.now_s += 0.001
        pauses.add(round(clock.now_s - begun_s, 3))
    assert min(pauses) >= 0.2
    assert max(pauses) <= 0.601
    assert len(pauses) > 20


def test_a_leader_counts_for_the_shortest_election_timeout(votes: PreVote, clock: Clock) -> None:
    assert not votes.has_leader()
    votes.leader_heard()
    clock.now_s += 0.59
    assert votes.has_leader()
    clock.now_s += 0.02
    assert not votes.has_leader()


def test_a_broken_link_ends_it_at_once(votes: PreVote) -> None:
    votes.leader_heard()
    votes.leader_lost()
    assert not votes.has_leader()


def test_a_non_member_that_hears_a_leader_does_not_count(votes: PreVote) -> None:
    votes.refused_as_stranger = True
    votes.leader_heard()
    assert not votes.refused_as_stranger
