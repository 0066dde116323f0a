"""Questions about clients between nodes."""

from __future__ import annotations

import pytest

from lmqcluster.node.access.client_lists import ClientPage, ClientQuery


@pytest.mark.parametrize(
    "query",
    [
        ClientQuery("connections", 0, 1),
        ClientQuery("consumers", 2_000, 1_000),
        ClientQuery("leases", 5, 10, bytes(range(1, 256))),
    ],
)
def test_a_query_survives_the_way_to_another_node(query: ClientQuery) -> None:
    words = query.words()
    assert all(len(word) <= 255 for word in words)
    assert ClientQuery.of(words) == query


@pytest.mark.parametrize(
    "words",
    [
        ["list", "tokens", "0", "1"],
        ["list", "leases", "0", "1001"],
        ["list", "leases", "0", "0"],
        ["list", "leases", "-1", "1"],
        ["list", "leases", "x", "1"],
        ["list", "leases", "0", "1", "\N{EURO SIGN}"],
        ["list", "leases", "0"],
    ],
)
def test_a_malformed_question_is_refused(words: list[str]) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  each word fails in its own way
        ClientQuery.of(words)


def test_nodes_without_an_answer_are_named() -> None:
    page = ClientPage()
    page.add("n1", {"rows": [{"port": "http"}], "total": 3, "complete": True})
    page.add("n2", {"rows": [], "total": 1, "complete": False})
    page.add("n3", None)
    page.add("n4", {})
    assert page == ClientPage([{"node": "n1", "port": "http"}], 4, False, ["n3", "n4"])
