"""A replica that differs from a majority stops; no other one does."""

from __future__ import annotations

import pytest

from lmqcluster.core import Machine, Op
from lmqcluster.core.log.commands import Digest, ReportDigest
from lmqcluster.node.membership.replica_digests import ReplicaDigests
from lmqcluster.node.queues.patterns.patterns import compile_pattern
from lmqcluster.replication.base.errors import FatalReplicationError

MEMBERS = {"a", "b", "c"}
TOKEN = b"token..."


def compared(own: bytes, *reports: tuple[str, bytes], token: bytes = TOKEN) -> ReplicaDigests:
    """Return the state of node a with this digest after these reports in the log."""
    digests = ReplicaDigests()
    digests.applied(Digest(TOKEN), own, "a", MEMBERS)
    for member, digest in reports:
        digests.applied(ReportDigest(token, member.encode(), digest), True, "a", MEMBERS)
    return digests


def test_equal_replicas_are_compared_once() -> None:
    assert compared(b"x", ("b", b"x"), ("c", b"x"), ("a", b"x")).compared_total == 1


@pytest.mark.parametrize("order", [("b", "c", "a"), ("a", "b", "c"), ("c", "a", "b")])
def test_a_replica_that_differs_from_a_majority_stops(order: tuple[str, ...]) -> None:
    shown = {"a": b"y", "b": b"x", "c": b"x"}
    with pytest.raises(FatalReplicationError, match=r"2 of 3 members.*lmq repair"):
        compared(b"y", *((member, shown[member]) for member in order))


@pytest.mark.parametrize(
    "reports",
    [
        [("b", b"y"), ("a", b"x")],
        [("b", b"y"), ("a", b"x"), ("c", b"z")],
        [("b", b"y"), ("stranger", b"y"), ("a", b"x")],
        [("b", b"y"), ("b", b"y")],
        [("stranger", b"y")],
        [("a", b"x"), ("b", b"x"), ("c", b"y")],
    ],
)
def test_without_a_majority_against_it_a_node_continues(reports: list[tuple[str, bytes]]) -> None:
    assert compared(b"x", *reports).compared_total <= 1


def test_reports_of_an_earlier_comparison_do_not_count() -> None:
    assert compared(b"x", ("b", b"y"), ("c", b"y"), token=b"earlier.").compared_total == 0


def test_the_digest_distinguishes_states_and_changes_nothing() -> None:
    def digest_of(*commands: list[object]) -> object:
        machine = Machine(compile_pattern)
        machine.apply(5, b"n", 1, 1, commands)
        before = list(machine.snapshot())
        [digest] = machine.apply(5, b"m", 1, 1, [[Op.DIGEST, TOKEN]]).results
        machine.state.node_sequences._sessions.pop(b"m")
        assert list(machine.snapshot()) == before
        return digest

    push = [Op.PUSH, b"q", None, [b"1"], None, 0]
    assert digest_of(push) == digest_of(push)
    assert len({digest_of(), digest_of(push), digest_of(push, push), digest_of([Op.PULL, b"q", 1])}) == 4
