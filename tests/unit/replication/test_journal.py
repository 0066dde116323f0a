"""The log in memory: what it keeps, drops and refuses."""

from __future__ import annotations

import random

import pytest

from lmqcluster.replication.storage.journal.journal import Entry, MemoryJournal

BASE = b"\x01"


class Store:
    """Stores term and vote and records what was made durable."""

    def __init__(self) -> None:
        self.term = 0
        self.vote: str | None = None
        self.saved: list[tuple[int, str | None]] = []

    def save_vote(self, term: int, vote: str | None) -> None:
        self.term, self.vote = term, vote
        self.saved.append((term, vote))


def journal(*terms: int) -> MemoryJournal:
    """Return a journal with the base and an entry for each term."""
    log = MemoryJournal(Store(), BASE)
    for index, term in enumerate(terms, 2):
        log.add(b"\x00c%d" % index, index, term)
    return log


def test_new_journal_has_a_base_only() -> None:
    log = journal()
    assert (log.first_index, log.last_index, len(log), log.size_bytes) == (1, 1, 1, 0)
    assert log[0] == log[-1] == Entry(BASE, 1, 0)
    assert log.getRaftCommitIndex() == 1


def test_entries_are_found_by_index_and_by_position() -> None:
    log = journal(1, 1, 2, 5)
    assert (log.first_index, log.last_index, len(log)) == (1, 5, 5)
    assert [log.term_at(index) for index in range(1, 6)] == [0, 1, 1, 2, 5]
    assert log.entries_between(2, 3) == [Entry(b"\x00c2", 2, 1), Entry(b"\x00c3", 3, 1)]
    assert log[1] == Entry(b"\x00c2", 2, 1)
    assert log[-1] == Entry(b"\x00c5", 5, 5)
    assert [entry.idx for entry in log[1:3]] == [2, 3]
    assert log.size_bytes > sum(len(entry.command) for entry in log[1:])


@pytest.mark.parametrize("index", [1, 2, 3, 5, 100])
def test_an_entry_must_follow_the_last_one(index: int) -> None:
    log = journal(1, 1)
    with pytest.raises(ValueError, match=f"entry {index} does not follow the last entry 3"):
        log.add(b"\x00x", index, 1)
    assert log.last_index == 3


def test_first_index_of_term() -> None:
    log = journal(1, 1, 2, 2, 2, 5)
    assert log.first_index_of_term(2, 6) == 4
    assert log.first_index_of_term(2, 4) == 4
    assert log.first_index_of_term(1, 3) == 2
    assert log.first_index_of_term(5, 7) == 7
    assert log.first_index_of_term(0, 1) == 1


def test_entries_are_bounded_by_bytes_but_never_none() -> None:
    log = journal(*[1] * 10)
    assert [entry.idx for entry in log.entries(2, 7)] == [2, 3]
    assert [entry.idx for entry in log.entries(2, 0)] == [2]
    assert [entry.idx for entry in log.entries(9, 10**6)] == [9, 10, 11]
    assert log.entries(12, 10**6) == []


@pytest.mark.parametrize("index", [0, -1, 12, 100])
def test_an_index_outside_the_log_is_an_error(index: int) -> None:
    log = journal(*[1] * 10)
    log.drop_before(2)
    with pytest.raises(IndexError):
        log.term_at(index)
    with pytest.raises(IndexError):
        log.term_at(1)


def test_truncation_removes_the_entry_and_all_later_ones() -> None:
    log = journal(1, 1, 2, 2)
    log.truncate_from(4)
    assert (log.last_index, log.term_at(3)) == (3, 1)
    log.add(b"\x00new", 4, 3)
    assert log.entries(4, 100) == [Entry(b"\x00new", 4, 3)]
    log.truncate_from(2)
    assert (len(log), log.size_bytes) == (1, 0)


def test_dropping_moves_the_base() -> None:
    log = journal(1, 1, 2, 2)
    assert log.drop_before(3) == []
    assert (log.first_index, log.last_index, len(log)) == (3, 5, 3)
    assert log[0] == Entry(b"\x00c3", 3, 1)
    assert log.drop_before(5) == []
    assert (log.first_index, len(log), log.size_bytes) == (5, 1, 0)


def test_membership_changes_are_kept_beside_the_entries() -> None:
    log = journal(1)
    for index, command in enumerate((b"\x02a", b"\x00x", b"\x02b", b"\x02c"), 3):
        log.add(command, index, 1)
    assert log.changes == [(3, b"\x02a"), (5, b"\x02b"), (6, b"\x02c")]
    log.truncate_from(6)
    assert log.drop_before(4) == [(3, b"\x02a")]
    assert log.changes == [(5, b"\x02b")]
    log.reset(9, 2)
    assert log.changes == []


def test_dropped_bodies_are_freed() -> None:
    log = journal()
    for index in range(2, 200):
        log.add(b"x" * 1000, index, 1)
    log.drop_before(150)
    assert sum(len(entry.command) for entry in log._entries) <= 51 * 1000


def test_reset_replaces_the_log_by_a_snapshot() -> None:
    log = journal(1, 1)
    log.reset(1000, 7)
    assert (log.first_index, log.last_index, log.term_at(1000), log.size_bytes) == (1000, 1000, 7, 0)
    log.add(b"\x00x", 1001, 8)
    assert log.last_index == 1001


def test_vote_and_term_go_to_the_store() -> None:
    store = Store()
    log = MemoryJournal(store, BASE)
    log.setCurrentTerm(4, "n2")
    assert store.saved == [(4, "n2")]
    assert (log.getCurrentTerm(), log.getVotedForNodeId()) == (4, "n2")


def test_library_interface_counts_positions_from_the_base() -> None:
    log = journal(1, 1, 1, 1)
    log.drop_before(3)
    log.deleteEntriesFrom(2)
    assert (log.first_index, log.last_index) == (3, 4)
    log.deleteEntriesTo(1)
    assert (log.first_index, log.last_index) == (4, 4)
    with pytest.raises(RuntimeError, match="never empties"):
        log.clear()


def test_against_a_list() -> None:
    """A long random history, compared with a plain list after every step."""
    rng = random.Random(5)
    log, model, first = journal(), [Entry(BASE, 1, 0)], 1
    for step in range(6000):
        last = model[-1].idx
        choice = rng.random()
        if choice < 0.9:
            entry = Entry(b"\x00%d" % step, last + 1, model[-1].term + (choice < 0.02))
            log.add(*entry)
            model.append(entry)
        elif choice < 0.96 and len(model) > 1:
            index = rng.randint(max(first + 1, last - 3), last)
            log.truncate_from(index)
            del model[index - first :]
        elif len(model) > 1:
            index = rng.randint(first, last)
            log.drop_before(index)
            del model[: index - first]
            first = index
        assert (log.first_index, log.last_index, len(log)) == (first, model[-1].idx, len(model))
        probe = rng.randint(first, model[-1].idx)
        assert log.term_at(probe) == model[probe - first].term
        assert log.entries_between(probe, model[-1].idx) == model[probe - first :]
    assert (log.size_bytes == 0) == (len(model) == 1)


def test_the_latest_log_time_is_that_of_the_last_batch() -> None:
    log = journal()
    assert log.stamped_us == 0
    for index, command in enumerate((batch(7), batch(9), b"\x01"), 2):
        log.add(command, index, 1)
    assert log.stamped_us == 9
    log.truncate_from(3)
    assert log.stamped_us == 7


def batch(stamp_us: int) -> bytes:
    """Return a batch of this log time."""
    return b"\x00" + stamp_us.to_bytes(8, "big") + b"x"
