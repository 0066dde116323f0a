"""A follower whose state cannot continue gets a snapshot of a later entry, as often as necessary and no more."""

from __future__ import annotations

from typing import Any

import pytest
from pysyncobj import syncobj as library

from lmqcluster.replication.base.membership import PeerNode
from lmqcluster.replication.base.settings import RaftSettings
from lmqcluster.replication.raft.log_sender import LogSender
from lmqcluster.replication.raft.progress import SNAPSHOT_PAUSE_S, SNAPSHOT_PAUSE_S_MAX
from lmqcluster.replication.storage.journal.journal import MemoryJournal
from lmqcluster.replication.storage.snapshots.snapshot_store import SnapshotInfo
from tests.unit.replication.test_log_sender import TERM, Store

FOLLOWER = PeerNode("f", "h:1")
COMMITTED = 9


class Leader:
    """A leader whose journal ends at entry 10, of which the first nine are committed."""

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

    def answer(self, *, installed: bool = False, restart: bool = False) -> None:
        """Confirm the last block of the snapshot that is being sent."""
        answer = {"index": self.sent(), "number": 0, "installed": installed, "restart": restart}
        self.sender.snapshot_answered(self.sender.progress_of(FOLLOWER), answer)

    def sent(self) -> int:
        """Return the index of the snapshot that is being sent, 0 for none."""
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
def test_the_effect_of_a_request(latest: int | None, applied: int, sent: int, requested: int) -> None:
    leader = Leader(latest)
    leader.sender.send_newer_snapshot(FOLLOWER, applied)
    assert (leader.sent(), leader.requested) == (sent, requested)


def test_one_in_flight_is_enough() -> None:
    leader = Leader(8)
    leader.sender.send_newer_snapshot(FOLLOWER, 5)
    leader._latest = 9
    leader.sender.send_newer_snapshot(FOLLOWER, 5)
    assert leader.sent() == 8


def test_a_useless_snapshot_is_resent_after_growing_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """A follower may lack a page that no member has, and answers at once."""
    now_s = 1000.0
    monkeypatch.setattr(library, "monotonicTime", lambda: now_s)
    leader = Leader(8)
    pauses_s = []
    for _ in range(9):
        since_s = now_s
        while not leader.sent():
            now_s += SNAPSHOT_PAUSE_S / 4
            leader.sender.send_newer_snapshot(FOLLOWER, 5)
        pauses_s.append(now_s - since_s)
        leader.answer(restart=True)
        assert not leader.sent()
    assert pauses_s[1] == pytest.approx(SNAPSHOT_PAUSE_S, abs=SNAPSHOT_PAUSE_S / 2)
    assert pauses_s[3] == pytest.approx(4 * SNAPSHOT_PAUSE_S, abs=SNAPSHOT_PAUSE_S / 2)
    assert pauses_s[-1] == pytest.approx(SNAPSHOT_PAUSE_S_MAX, abs=SNAPSHOT_PAUSE_S / 2)


def test_one_that_was_installed_ends_the_pauses() -> None:
    leader = Leader(8)
    progress = leader.sender.progress_of(FOLLOWER)
    progress.snapshot_failed(library.monotonicTime())
    progress.snapshot_from_s = 0.0
    leader.sender.send_newer_snapshot(FOLLOWER, 5)
    leader.answer(installed=True)
    leader.sender.send_newer_snapshot(FOLLOWER, 5)
    assert leader.sent() == 8
    leader.answer(restart=True)
    assert progress.snapshot_pause_s == SNAPSHOT_PAUSE_S
