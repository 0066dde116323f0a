"""Heartbeats during a sync affect only timers, and only those of followers or the leader of the same term."""

from __future__ import annotations

from typing import Any

import pytest
from pysyncobj import syncobj as library

from lmqcluster.replication.base.membership import PeerNode
from lmqcluster.replication.raft.sync_heartbeats import ANSWER_S, SyncHeartbeats

A, B, C = (PeerNode(name) for name in "abc")
TERM = 7


class Member:
    """The part of a Raft core that heartbeats use, and its transport."""

    def __init__(self, *, leads: bool = False, follows: PeerNode | None = None, due: bool = True) -> None:
        self.leads = leads
        self.follows = follows
        self.due = due
        self.heard: list[PeerNode] = []
        self.sent: list[tuple[PeerNode, dict[str, Any]]] = []

    def term(self) -> int:
        return TERM

    def commit_index(self) -> int:
        return 1

    def is_leader(self) -> bool:
        return self.leads

    def members(self) -> dict[str, str]:
        return {"a": "a", "b": "b", "c": "c"}

    def beat_is_due(self) -> bool:
        return self.leads and self.due

    def heard_leader(self, node: PeerNode, term: int) -> bool:
        return node == self.follows and term == TERM

    def heard_follower(self, node: PeerNode, term: int) -> None:
        assert term == TERM
        self.heard.append(node)

    def send(self, node: PeerNode, message: dict[str, Any]) -> bool:
        self.sent.append((node, message))
        return True


def signs(member: Member) -> SyncHeartbeats:
    return SyncHeartbeats(member, member)  # type: ignore[arg-type]


def test_a_leader_sends_heartbeats_to_all_members() -> None:
    member = Member(leads=True)
    signs(member).send()
    assert member.sent == [(node, {"type": "alive", "term": TERM}) for node in (A, B, C)]


@pytest.mark.parametrize("member", [Member(leads=True, due=False), Member(follows=A)])
def test_no_other_member_sends_and_not_before_it_is_due(member: Member) -> None:
    signs(member).send()
    assert not member.sent


@pytest.mark.parametrize("kind", ["alive", "append_entries", "snapshot"])
def test_a_follower_answers_its_leader(kind: str) -> None:
    member = Member(follows=A)
    signs(member).take(A, {"type": kind, "term": TERM})
    assert member.sent == [(A, {"type": "alive_reply", "term": TERM})]


def test_few_of_many_entries_are_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 1000.0
    monkeypatch.setattr(library, "monotonicTime", lambda: now_s)
    member = Member(follows=A)
    one = signs(member)
    for _ in range(10):
        one.take(A, {"type": "append_entries", "term": TERM})
    assert len(member.sent) == 1
    one.take(A, {"type": "alive", "term": TERM})
    assert len(member.sent) == 2
    now_s += 2 * ANSWER_S
    one.take(A, {"type": "append_entries", "term": TERM})
    assert len(member.sent) == 3


@pytest.mark.parametrize(("node", "term"), [(C, TERM), (A, TERM - 1), (A, TERM + 1)])
def test_no_other_member_is_answered(node: PeerNode, term: int) -> None:
    """Appended entries may carry another term or leader, and are answered from the state on disk."""
    member = Member(follows=A)
    signs(member).take(node, {"type": "alive", "term": term})
    assert not member.sent


@pytest.mark.parametrize("kind", ["alive_reply", "append_reply", "snapshot_reply"])
def test_an_answer_counts_as_a_heartbeat(kind: str) -> None:
    member = Member(leads=True)
    signs(member).take(B, {"type": kind, "term": TERM})
    assert member.heard == [B]


@pytest.mark.parametrize("kind", ["propose", "request_vote", "pre_vote", "about"])
def test_other_messages_do_not_count(kind: str) -> None:
    for member in (Member(leads=True), Member(follows=A)):
        signs(member).take(A, {"type": kind, "term": TERM})
        assert not member.heard
        assert not member.sent
