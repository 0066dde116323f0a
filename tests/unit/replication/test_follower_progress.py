"""The states of a follower's replication: what each permits, and the invariants that all keep."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from lmqcluster.replication.raft.progress import WINDOW_BYTES_MAX, Progress, State
from lmqcluster.replication.storage.snapshots.snapshot_store import SnapshotInfo

SNAPSHOT = SnapshotInfo(8, 1, {}, 0, 1, 1, "x")


def replicating(next_index: int = 5) -> Progress:
    """Return the progress of a follower whose log is known to match."""
    progress = Progress.begin(next_index, 0)
    progress.sequence = 1
    progress.matched(next_index - 1, 1)
    return progress


def check(progress: Progress) -> None:
    assert (progress.snapshot is not None) == (progress.state is State.SNAPSHOT)
    assert progress.state is not State.PROBE or not progress.inflight
    assert progress.inflight_bytes == sum(size for _index, size in progress.inflight)
    indexes = [index for index, _size in progress.inflight]
    assert all(earlier < later for earlier, later in pairwise([*indexes, progress.next_index]))
    assert progress.next_index >= 1
    assert progress.first_sequence <= progress.reset_sequence <= progress.sequence + 1


def send(progress: Progress, rng: random.Random) -> None:
    """Send a message as `LogSender` does."""
    may_send = progress.may_send_entries()
    progress.sequence += 1
    if progress.state is State.PROBE:
        progress.probe_sent = True
    elif may_send and rng.random() < 0.2:
        progress.become_bulk()
    elif may_send:
        progress.sent(progress.next_index + rng.randrange(3), rng.randrange(WINDOW_BYTES_MAX // 4))


def answer(progress: Progress, rng: random.Random) -> None:
    """Take an answer as `RaftCore` and `LogSender` do."""
    if progress.state is State.SNAPSHOT:
        if rng.random() < 0.5:
            progress.snapshot_failed(1.0)
        else:
            progress.snapshot_installed(SNAPSHOT.index)
    elif rng.random() < 0.7:
        progress.matched(rng.randrange(progress.next_index + 3), rng.randint(0, progress.sequence))
    else:
        progress.become_probe(rng.randint(1, progress.next_index))


def test_invariants_hold_whatever_happens() -> None:
    seen = set()
    for seed in range(50):
        rng = random.Random(seed)
        progress = Progress.begin(rng.randint(1, 20), 5)
        for _ in range(300):
            step = rng.random()
            if step < 0.5:
                send(progress, rng)
            elif step < 0.95:
                answer(progress, rng)
            elif progress.state is not State.SNAPSHOT:
                progress.become_snapshot(SNAPSHOT)
            check(progress)
            seen.add(progress.state)
    assert seen == set(State)


def test_one_probe_is_sent_at_a_time() -> None:
    progress = Progress.begin(5, 0)
    assert progress.may_send_entries()
    progress.probe_sent = True
    assert not progress.may_send_entries()
    progress.become_probe(3)
    assert progress.may_send_entries()


def test_an_answer_to_what_was_sent_before_the_probe_is_no_match() -> None:
    progress = Progress.begin(5, 6)
    progress.matched(4, 6)
    early = progress.state
    progress.matched(4, 7)
    assert (early, progress.state) == (State.PROBE, State.REPLICATE)


def test_entries_wait_until_the_follower_holds_the_large_one() -> None:
    progress = replicating(5)
    progress.become_bulk()
    assert not progress.may_send_entries()
    progress.matched(4, 2)
    assert progress.state is State.BULK
    progress.matched(5, 3)
    assert (progress.state, progress.next_index) == (State.REPLICATE, 6)


@pytest.mark.parametrize("before", [State.PROBE, State.REPLICATE, State.BULK])
def test_a_snapshot_of_no_use_returns_to_the_state_before_it(before: State) -> None:
    progress = Progress.begin(5, 0) if before is State.PROBE else replicating()
    if before is State.BULK:
        progress.become_bulk()
    progress.become_snapshot(SNAPSHOT)
    assert not progress.may_send_entries()
    progress.snapshot_failed(10.0)
    assert progress.state is before
    assert progress.snapshot_from_s > 10.0


def test_an_installed_snapshot_is_followed_by_a_probe_behind_it() -> None:
    progress = replicating(5)
    progress.become_snapshot(SNAPSHOT)
    progress.snapshot_installed(SNAPSHOT.index)
    assert (progress.state, progress.next_index, progress.snapshot_from_s) == (State.PROBE, SNAPSHOT.index + 1, 0.0)
