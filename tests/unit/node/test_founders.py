"""The founding members with any spelling of their addresses, and the obstacles to founding."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmqcluster.node.membership.founders import Answer, Decision, decide, identify
from lmqcluster.wire.address import Address


def fresh(node_id: str, founders: Iterable[str] | None = None) -> Answer:
    """Return the state of a node that is to found a cluster and has found these founding members."""
    found = None if founders is None else frozenset(founders)
    return Answer(node_id, f"{node_id}:folder", node_id, {}, founding=True, founders=found)


def member(node_id: str, *members: str) -> Answer:
    """Return the state of a member of a cluster."""
    return Answer(node_id, f"{node_id}:folder", node_id, {one: one for one in members}, False, frozenset(members))


def decision(me: Answer, answers: Mapping[str, Answer | str], *, is_listed: bool = False) -> Decision:
    return decide(me, answers, identify(me, answers, is_listed=is_listed))


A = fresh("a:1")


def test_the_answering_nodes_are_the_members() -> None:
    assert identify(A, {"b:1": fresh("b:1"), "c:1": fresh("c:1")}, is_listed=True) == {
        "a:1": "a:1",
        "b:1": "b:1",
        "c:1": "c:1",
    }
    other_names = {"10.0.0.1:1": A, "10.0.0.2:1": fresh("b:1"), "c:1": fresh("c:1")}
    last = fresh("z:1")
    assert list(identify(last, other_names, is_listed=False)) == ["a:1", "b:1", "c:1", "z:1"]
    assert identify(A, other_names, is_listed=False) == {"a:1": "a:1", "b:1": "b:1", "c:1": "c:1"}


@pytest.mark.parametrize(
    ("answers", "is_listed", "obstacle"),
    [
        ({"x:1": A, "c:1": fresh("c:1")}, True, "peers has this node, a:1, more than once: also as x:1;"),
        (
            {"x:1": A, "y:1": A, "c:1": fresh("c:1")},
            False,
            "peers has this node, a:1, more than once: also as x:1, y:1;",
        ),
        ({"b:1": fresh("b:1"), "x:1": fresh("b:1")}, False, "peers has one node, b:1, twice: as b:1 and as x:1;"),
        ({"x:1": A}, False, "peers has no other node: at x:1 answers this one, a:1;"),
        ({"x:1": A._replace(origin="other"), "c:1": fresh("c:1")}, False, "another node, at x:1, advertises a:1 too:"),
        ({"b:1": "no answer", "c:1": fresh("c:1")}, False, "the founding members wait for b:1 (no answer):"),
    ],
)
def test_a_list_that_contradicts_the_answers_founds_nothing(
    answers: Mapping[str, Answer | str], is_listed: bool, obstacle: str
) -> None:
    """A name may resolve wrongly for a moment: if it were believed, a node could found a separate cluster."""
    agreeing = {
        address: one if isinstance(one, str) or one.id == "a:1" else fresh(one.id, ["a:1", "c:1"])
        for address, one in answers.items()
    }
    found = decision(A, agreeing, is_listed=is_listed)
    assert found.obstacle is not None
    assert found.obstacle.startswith(obstacle)
    assert (found.founders, found.cluster) == (None, None)


def test_nodes_begin_once_all_have_found_the_same() -> None:
    all_of_them = ["a:1", "b:1", "c:1"]
    answers = {"x:1": A, "b:1": fresh("b:1", all_of_them), "c:1": fresh("c:1")}
    waiting = decision(A, answers)
    assert (waiting.founders, waiting.obstacle) == (None, "the founding members wait for c:1 to find all others")
    answers["c:1"] = fresh("c:1", all_of_them)
    assert decision(A, answers) == Decision(founders={"a:1": "a:1", "b:1": "b:1", "c:1": "c:1"})


def test_other_peers_are_named() -> None:
    answers = {"b:1": fresh("b:1", ["a:1", "b:1", "c:1"]), "c:1": fresh("c:1", ["a:1", "c:1", "d:1"])}
    found = decision(A, answers)
    assert found.founders is None
    assert found.obstacle == (
        "the node at c:1, c:1, was given other peers: it has found a:1, c:1, d:1, this node a:1, b:1, c:1;"
        " give all founding members the same peers, and restart those that had others"
    )


def test_a_cluster_with_the_node_is_adopted_and_another_one_is_reported() -> None:
    own = member("b:1", "a:1", "b:1", "d:1")
    assert decision(A, {"b:1": own, "c:1": "no answer"}) == Decision(cluster=own.members)
    # A node that was removed, and does not know it, hides nothing.
    assert decision(A, {"0:1": member("x:1", "x:1"), "b:1": own}) == Decision(cluster=own.members)
    foreign = decision(A, {"b:1": member("b:1", "b:1", "d:1"), "c:1": "no answer"})
    assert (foreign.cluster, foreign.founders) == (None, None)
    assert foreign.obstacle is not None
    assert "at b:1, b:1, belongs to a cluster without this node, a:1: its members are b:1, d:1." in foreign.obstacle
    assert "lmq-admin join b:1" in foreign.obstacle
    outside = decision(A, {"b:1": member("b:1")})
    assert outside.obstacle is not None
    assert outside.obstacle.startswith("the founding members wait for b:1 (it has left its cluster,")


NODES = ["a", "b", "c", "d"]
NAMES = [f"{one}{spelling}" for one in NODES for spelling in "123"]


@given(
    lists=st.lists(st.lists(st.sampled_from(NAMES), min_size=1, max_size=5, unique=True), min_size=4, max_size=4),
    wrong=st.dictionaries(
        st.tuples(st.sampled_from(NODES), st.sampled_from(NAMES)), st.sampled_from(NODES), max_size=3
    ),
)
def test_members_that_begin_have_found_the_same_with_any_meaning_of_names(
    lists: list[list[str]], wrong: dict[tuple[str, str], str]
) -> None:
    """`a1`, `a2` and `a3` are names of node a, whose id is `a1`; some names mean another node to some nodes."""
    views = {}
    for me, peers in zip(NODES, lists, strict=True):
        own = f"{me}1"
        there = {name: f"{wrong.get((me, name), name[0])}1" for name in peers if name != own}
        found = identify(fresh(own), {name: fresh(one) for name, one in there.items()}, is_listed=own in peers)
        views[own] = there, found
    replies = {me: fresh(me, None if isinstance(found, str) else found) for me, (_there, found) in views.items()}
    begun: dict[str, set[str]] = {}
    for me, (there, found) in views.items():
        decided = decide(fresh(me), {name: replies[one] for name, one in there.items()}, found)
        assert (decided.founders is None) == (decided.obstacle is not None)
        if decided.founders is not None:
            begun[me] = set(decided.founders)
    for me, mine in begun.items():
        assert me in mine
        assert len(mine) > 1
        for other in mine & begun.keys():
            assert begun[other] == mine


@given(st.data())
def test_nodes_that_are_named_once_in_all_lists_find_each_other(data: st.DataObject) -> None:
    answers = {}
    for me in NODES:
        names = {one: data.draw(st.sampled_from([name for name in NAMES if name[0] == one])) for one in NODES}
        if data.draw(st.booleans()):
            del names[me]
        answers[me] = {name: fresh(f"{one}1", [f"{each}1" for each in NODES]) for one, name in names.items()}
    for me in NODES:
        own = f"{me}1"
        others = {name: one for name, one in answers[me].items() if name != own}
        assert decision(fresh(own), others, is_listed=own in answers[me]).founders == {
            f"{one}1": f"{one}1" for one in NODES
        }


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("N1.Example.:19980", "n1.example:19980"),
        ("10.0.0.1:1", "10.0.0.1:1"),
        ("[0:0::1]:1", "[::1]:1"),
        ("LOCALHOST:1", "127.0.0.1:1"),
        ("localhost.:1", "127.0.0.1:1"),
    ],
)
def test_addresses_are_compared_by_one_spelling(text: str, canonical: str) -> None:
    assert str(Address.parse(text).canonical) == canonical
