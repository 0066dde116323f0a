"""A large entry in flight to a follower: heartbeats overtake it, other entries do not."""

from __future__ import annotations

from typing import Any

from lmqcluster.replication.base.membership import PeerNode
from lmqcluster.replication.base.settings import RaftSettings
from lmqcluster.replication.peers.messages import BULK_BYTES
from lmqcluster.replication.raft.log_sender import LogSender
from lmqcluster.replication.storage.journal.journal import MemoryJournal

FOLLOWER = PeerNode("f", "h:1")
TERM = 3


class Store:
    term = TERM
    vote: str | None = None

    def save_vote(self, term: int, vote: str | None) -> None:
        raise AssertionError((term, vote))


class Leader:
    """A leader whose messages the test inspects."""

    def __init__(self) -> None:
        self.journal = MemoryJournal(Store(), b"\x01")
        self.sent: list[dict[str, Any]] = []
        self.sender = LogSender(self, self, self.journal, self, RaftSettings(), {FOLLOWER})  # type: ignore[arg-type]
        self.sender.begin_term([FOLLOWER])
        self.heartbeat()
        self.answer(1)
        self.sent.clear()

    def term(self) -> int:
        return TERM

    def commit_index(self) -> int:
        return 1

    def is_leader(self) -> bool:
        return True

    def send(self, _node: PeerNode, message: dict[str, Any]) -> bool:
        self.sent.append(message)
        return True

    def add(self, size: int) -> None:
        self.journal.add(bytes(size), self.journal.last_index + 1, TERM)

    def flush(self) -> None:
        self.sender.flush([FOLLOWER], None)

    def heartbeat(self) -> None:
        self.sender.replicate(FOLLOWER, heartbeat=True)

    def answer(self, match: int) -> None:
        progress = self.sender.progress_of(FOLLOWER)
        progress.matched(match, progress.sequence)

    def shown(self) -> list[tuple[int, list[int]]]:
        """Return the previous index and the entries of the messages sent since."""
        sent, self.sent = self.sent, []
        return [(message["prevLogIdx"], [entry.idx for entry in message["entries"]]) for message in sent]


def test_heartbeats_precede_a_large_entry_until_it_is_answered() -> None:
    leader = Leader()
    leader.add(10)
    leader.add(BULK_BYTES + 1)
    leader.add(10)
    leader.flush()
    assert leader.shown() == [(1, [2]), (2, [3])]
    leader.flush()
    leader.heartbeat()
    assert leader.shown() == [(2, [])]
    leader.answer(2)
    leader.flush()
    assert leader.shown() == []
    assert not leader.sender.has_sent_all(FOLLOWER)
    leader.answer(3)
    leader.flush()
    assert leader.shown() == [(3, [4])]
    assert leader.sender.has_sent_all(FOLLOWER)


def test_a_large_entry_is_not_a_probe() -> None:
    leader = Leader()
    leader.add(BULK_BYTES + 1)
    leader.sender.progress_of(FOLLOWER).become_probe(2)
    leader.flush()
    leader.flush()
    assert leader.shown() == [(1, [])]
    leader.answer(1)
    leader.flush()
    assert leader.shown() == [(1, [2])]


def test_a_large_entry_is_resent_after_a_refusal() -> None:
    leader = Leader()
    leader.add(BULK_BYTES + 1)
    leader.flush()
    leader.sender.progress_of(FOLLOWER).become_probe(2)
    leader.flush()
    leader.answer(1)
    leader.flush()
    assert leader.shown() == [(1, [2]), (1, []), (1, [2])]
