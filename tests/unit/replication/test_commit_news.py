"""The time at which followers learn of a commit: with the next entries, if these follow soon."""

from __future__ import annotations

from lmqcluster.replication.raft.commit_notifier import PATIENCE_S, CommitNotifier

SOON_S = PATIENCE_S / 4
ROUNDS = 40


class Leader:
    """Commits entries and appends further ones."""

    def __init__(self) -> None:
        self.news = CommitNotifier()
        self.now_s = 1000.0
        self.index = 1

    def commits(self) -> bool:
        """Commit everything; return whether followers may learn of it later."""
        return self.news.may_wait(self.index, self.index, self.now_s)

    def appends_after(self, pause_s: float) -> bool:
        """Append an entry after a pause; return whether a commit is left that followers may learn of later."""
        self.now_s += pause_s
        self.index += 1
        return self.news.may_wait(self.index - 1, self.index, self.now_s)

    def is_busy(self, pause_s: float, rounds: int = ROUNDS) -> bool:
        """Append and commit repeatedly; return the last answer to a commit."""
        waits = False
        for _ in range(rounds):
            self.appends_after(pause_s)
            waits = self.commits()
        return waits


def test_a_commit_waits_while_entries_follow_soon() -> None:
    assert Leader().is_busy(SOON_S)


def test_the_first_commits_do_not_wait() -> None:
    leader = Leader()
    assert not leader.commits()
    assert not leader.is_busy(SOON_S, rounds=1)


def test_a_commit_does_not_wait_while_entries_are_rare() -> None:
    assert not Leader().is_busy(10 * PATIENCE_S)


def test_nothing_waits_longer_than_the_patience_and_then_nothing_waits_for_a_while() -> None:
    leader = Leader()
    assert leader.is_busy(SOON_S)
    leader.now_s += 1.01 * PATIENCE_S
    assert not leader.commits()
    assert not leader.is_busy(SOON_S, rounds=3)
    assert leader.is_busy(SOON_S)


def test_entries_carry_the_commit_index() -> None:
    leader = Leader()
    assert leader.is_busy(SOON_S)
    assert not leader.appends_after(SOON_S)


def test_a_further_commit_starts_a_new_wait() -> None:
    """Of two commits without entries in between, the second waits no longer than the first."""
    leader = Leader()
    assert leader.is_busy(SOON_S)
    leader.index += 1
    assert not leader.news.may_wait(leader.index - 1, leader.index, leader.now_s)
    leader.now_s += SOON_S
    assert leader.commits()
    leader.now_s += 1.01 * PATIENCE_S
    assert not leader.commits()
