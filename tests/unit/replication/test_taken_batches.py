"""A leader appends a batch that is sent again only if it could still be missing in the log."""

from __future__ import annotations

from typing import cast

import msgpack
from hypothesis import given
from hypothesis import strategies as st

from lmqcluster.core.dedup.node_sequences import NodeSequences
from lmqcluster.replication.base.batch_entry import batch_number, decode_batch
from lmqcluster.replication.raft.view import RaftView
from lmqcluster.replication.taken_batches import TakenBatches


def batch(sequence: int, *, origin: bytes = b"n1", incarnation: int = 7, body: bytes = b"x") -> bytes:
    return cast("bytes", msgpack.packb([origin, incarnation, sequence, [[1, b"q", body]]]))


class Node:
    """A node with a log, and the role that the test gives it."""

    def __init__(self) -> None:
        self.leads = True
        self.now_term = 1
        self.log: list[bytes] = []
        self.taken = TakenBatches(cast("RaftView", self))

    def is_leader(self) -> bool:
        return self.leads

    def term(self) -> int:
        return self.now_term

    def append(self, data: bytes) -> bool:
        if self.leads:
            self.log.append(data)
        return self.leads

    def take(self, data: bytes) -> bool:
        """Take a batch; return whether the log has it."""
        return self.taken.take(data, lambda: self.append(data))

    @property
    def sequences(self) -> list[int]:
        return [decode_batch(data)[2] for data in self.log]


def test_batches_that_are_sent_again_are_appended_once() -> None:
    node = Node()
    for sequence in (1, 2, 3, 1, 2, 3, 4):
        assert node.take(batch(sequence))
        assert node.taken.has(batch(sequence))
    assert node.sequences == [1, 2, 3, 4]


def test_a_batch_is_appended_again_in_another_term() -> None:
    """The entry of an earlier term may have been removed."""
    node = Node()
    node.take(batch(1))
    node.now_term += 1
    assert not node.taken.has(batch(1))
    assert node.take(batch(1))
    assert node.sequences == [1, 1]


def test_a_batch_that_was_refused_is_not_in_the_log() -> None:
    node = Node()
    node.leads = False
    assert not node.take(batch(1))
    node.leads = True
    assert not node.taken.has(batch(1))
    assert node.take(batch(1))
    assert node.sequences == [1]


def test_a_node_that_does_not_lead_any_more_takes_nothing() -> None:
    node = Node()
    node.take(batch(1))
    node.leads = False
    assert not node.taken.has(batch(1))
    assert not node.take(batch(1))


def test_a_batch_before_which_one_was_lost_is_appended_again_behind_that_one() -> None:
    node = Node()
    for sequence in (1, 3, 4, 2, 3, 4):
        assert node.take(batch(sequence))
    assert node.sequences == [1, 3, 4, 2, 3, 4]


def test_numbers_of_other_nodes_and_incarnations_are_others() -> None:
    node = Node()
    others = [batch(1), batch(1, origin=b"n2"), batch(1, incarnation=8)]
    for one in (*others, *others[1:]):
        assert node.take(one)
    assert node.log == others


def test_what_is_not_a_batch_is_appended_each_time() -> None:
    node = Node()
    broken = [b"", b"\xc1poison", b"\x94", b"\x01", *(msgpack.packb(one) for one in ([1, 2, 3, 4], [b"n1", 7, 1]))]
    for one in broken * 2:
        assert batch_number(one) is None
        assert node.take(one)
    assert node.log == broken * 2


def test_the_number_is_found_in_front_of_large_commands() -> None:
    assert batch_number(batch(2**40, origin=b"o" * 128, incarnation=2**60, body=bytes(10**6))) == (
        b"o" * 128,
        2**60,
        2**40,
    )


@given(arrivals=st.lists(st.tuples(st.integers(0, 5), st.booleans()), max_size=30), terms=st.sets(st.integers(0, 29)))
def test_every_batch_is_applied_once_whatever_is_lost_or_late(
    arrivals: list[tuple[int, bool]], terms: set[int]
) -> None:
    """Some batches arrive, in any order; the log may lose its end in a new term. Then the node sends the rest again."""
    node = Node()
    for turn, (sequence, is_new) in enumerate(arrivals):
        if turn in terms:
            node.now_term += 1
            if is_new:
                node.log.pop() if node.log else None
        node.take(batch(sequence + 1))
    applied = NodeSequences()
    statuses = _apply(applied, node.log)
    while (last := applied.last_sequence(b"n1", 7)) < 6:
        before = len(node.log)
        for sequence in range(last + 1, 7):
            node.take(batch(sequence))
        assert len(node.log) > before
        statuses += _apply(applied, node.log[before:])
    assert statuses.count("applied") == 6


def _apply(applied: NodeSequences, log: list[bytes]) -> list[str]:
    return [applied.admit(*decode_batch(data)[:3]) for data in log]
