"""A follower whose state cannot go on is sent a snapshot of a later entry, as often as it takes and no more."""

from __future__ import annotations

from typing import Any

import pytest

from lmqcluster.replication.journal import MemoryJournal
from lmqcluster.replication.log_sender import LogSender
from lmqcluster.replication.membership import PeerNode
from lmqcluster.replication.settings import RaftSettings
from lmqcluster.replication.storage.snapshot_store import SnapshotInfo
from tests.unit.replication.test_log_sender import TERM, Store

FOLLOWER = PeerNode("f", "h:1")
COMMITTED = 9


class Leader:
    """One whose journal goes to entry 10, of which the first nine are committed."""

    def __init__(self, latest: int | None) -> None:
        self._latest = latest
        self.requested = 0
        journal = MemoryJournal(Store(), b"\x01")
        for index in range(journal.last_index + 1, COMMITTED + 2):
            journal.add(b"x", index, TERM)
        self.sender = LogSender(self, self, journal, self, RaftSettings(), {FOLLOWER})  # type: ignore[arg-type]
        self.sender.begin_term([FOLLOWER])

    def term(self) -> int:
        return TERM

    def commit_index(self) -> int:
        return COMMITTED

    def is_leader(self) -> bool:
        return True

    def send(self, _node: PeerNode, _message: dict[str, Any]) -> bool:
        return True

    def latest(self) -> SnapshotInfo | None:
        return None if self._latest is None else SnapshotInfo(self._latest, TERM, {}, 0, 1, 1, "x")

    def request(self) -> None:
        self.requested += 1

    def sent(self) -> int:
        """Index of the snapshot that is being sent, 0 for none."""
        transfer = self.sender.progress_of(FOLLOWER).snapshot
        return 0 if transfer is None else transfer.info.index


@pytest.mark.parametrize(
    ("latest", "applied", "sent", "requested"),
    [
        (8, 5, 8, 0),
        (5, 5, 0, 1),
        (None, 5, 0, 1),
        (8, COMMITTED, 0, 0),
        (8, 1 << 60, 0, 0),
        (8, -1, 8, 0),
    ],
)
def test_what_a_request_brings(latest: int | None, applied: int, sent: int, requested: int) -> None:
    leader = Leader(latest)
    leader.sender.send_newer_snapshot(FOLLOWER, applied)
    assert (leader.sent(), leader.requested) == (sent, requested)


def test_one_on_its_way_is_enough() -> None:
    leader = Leader(8)
    leader.sender.send_newer_snapshot(FOLLOWER, 5)
    leader._latest = 9
    leader.sender.send_newer_snapshot(FOLLOWER, 5)
    assert leader.sent() == 8
