"""LMQ over MessagePack-RPC, specification 3 and 5: properties, default rules, accumulation."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from .cluster import NodeProcess
from .raw_http import call
from .raw_rpc import Rpc, open_rpc


@pytest.fixture
def rpc(node: NodeProcess) -> Iterator[Rpc]:
    with Rpc(node.rpc) as connection:
        yield connection


@pytest.fixture
def rules(rpc: Rpc) -> Iterator[Callable[[list], None]]:
    """Sets default rules and removes them afterwards."""
    yield lambda value: rpc.call("set_default_props", value)
    rpc.call("set_default_props", [])


@pytest.fixture
def shown(node: NodeProcess, queue_name: str) -> Callable[[], dict]:
    """Return the effective properties of the test's queue as HTTP shows them."""
    return lambda: call(node.http, "GET", f"/properties/{queue_name}").json


# --- 3: properties ----------------------------------------------------------------------------------------------------


def test_system_defaults(shown: Callable[[], dict]) -> None:
    """3: accum 0, retry 2, timeout 30; reading does not need the queue to exist."""
    assert shown() == {"accum": 0, "retry": 2, "timeout": 30}


@pytest.mark.parametrize("name", ["pack", "accum"])
@pytest.mark.parametrize(
    ("value", "seen"),
    [(5, 5), (1.5, 1.5), (0.0015, 0.002), (0.0014, 0.001), (0.0001, 0), (-0.0015, -0.002), (-3, -3), (0, 0)],
)
def test_accum_is_kept_in_whole_milliseconds(
    rpc: Rpc, queue_name: str, shown: Callable[[], dict], name: str, value: float, seen: float
) -> None:
    """3: `accum` (RPC also `pack`), rounded half away from zero, negative numbers accepted; 10.3: HTTP shows
    it as `accum`.
    """
    assert rpc.call("update_props", queue_name, {name: value}) == b"ok"
    assert shown() == {"accum": seen, "retry": 2, "timeout": 30}


def test_of_pack_and_accum_the_last_wins(rpc: Rpc, queue_name: str, shown: Callable[[], dict]) -> None:
    """10.3: input accepts both names; if both are given the one that comes last wins."""
    rpc.call("update_props", queue_name, {"pack": 1, "accum": 2})
    assert shown()["accum"] == 2
    rpc.call("update_props", queue_name, {"accum": 3, "pack": 4})
    assert shown()["accum"] == 4


@pytest.mark.parametrize("properties", [{"retry": 0}, {"timeout": 0}, {"timeout": 1e12}], ids=repr)
def test_zero_and_large_numbers_are_accepted(
    rpc: Rpc, queue_name: str, shown: Callable[[], dict], properties: dict
) -> None:
    """3; negative ones, which LMQ accepts too, lose messages and are refused."""
    rpc.call("update_props", queue_name, properties)
    assert shown() == {"accum": 0, "retry": 2, "timeout": 30} | properties


def test_update_props_merges(rpc: Rpc, queue_name: str, shown: Callable[[], dict]) -> None:
    """10.3: merges like PATCH; 14: the rest are kept."""
    rpc.call("update_props", queue_name, {"retry": 5})
    rpc.call("update_props", queue_name, {"timeout": 7.5})
    assert shown() == {"accum": 0, "retry": 5, "timeout": 7.5}


@pytest.mark.parametrize("arguments", [(), ({},)], ids=["one argument", "empty map"])
def test_update_props_without_properties_clears(
    rpc: Rpc, queue_name: str, shown: Callable[[], dict], arguments: tuple
) -> None:
    """10.3: clears own properties; update_props(name, {}) clears like the one-argument form."""
    rpc.call("update_props", queue_name, {"retry": 5, "timeout": 1, "pack": 2})
    assert rpc.call("update_props", queue_name, *arguments) == b"ok"
    assert shown() == {"accum": 0, "retry": 2, "timeout": 30}


def test_hooks_read_back_with_the_structure_given(rpc: Rpc, queue_name: str, shown: Callable[[], dict]) -> None:
    """6: the property reads back exactly; unknown hook points are stored and shown without effect."""
    hooks = {"pre_http_push": [["lmq_hook_preserve_header", ["user-agent", "x-foo"]]], "some_point": []}
    rpc.call("update_props", queue_name, {"hooks": hooks})
    assert shown()["hooks"] == hooks
    rpc.call("update_props", queue_name, {"hooks": {}})
    assert shown()["hooks"] == {}


# --- 3.1: resolution --------------------------------------------------------------------------------------------------


def test_own_value_then_first_matching_rule_then_system_default(
    rpc: Rpc, queue_name: str, shown: Callable[[], dict], rules: Callable[[list], None]
) -> None:
    """3.1: for each property separately; rules after the first match are ignored even for properties it does
    not mention.
    """
    rules([["^no match", {"timeout": 1}], [queue_name, {"retry": 9}], [queue_name[:-1], {"retry": 1, "timeout": 2}]])
    assert shown() == {"accum": 0, "retry": 9, "timeout": 30}
    rpc.call("update_props", queue_name, {"retry": 3, "pack": 1})
    assert shown() == {"accum": 1, "retry": 3, "timeout": 30}
    rpc.call("update_props", queue_name)
    assert shown() == {"accum": 0, "retry": 9, "timeout": 30}


def test_rules_are_an_unanchored_search(
    queue_name: str, shown: Callable[[], dict], rules: Callable[[list], None]
) -> None:
    """3.1: regular expressions are an unanchored search in the decoded queue name."""
    rules([[queue_name[3:-3], {"retry": 9}]])
    assert shown()["retry"] == 9
    rules([[f"^{queue_name[3:]}", {"retry": 9}]])
    assert shown()["retry"] == 2


def test_rules_are_dynamic(rpc: Rpc, queue_name: str, rules: Callable[[list], None]) -> None:
    """3.1: setting, replacing or deleting rules affects existing queues as well as later ones; 3.2: for later
    pushes.
    """
    rpc.call("push", queue_name, 1)
    rules([[f"^{queue_name}", {"retry": 7}]])
    rpc.call("push", queue_name, 2)
    rpc.call("push", queue_name + "-later", 1)
    rules([])
    rpc.call("push", queue_name, 3)
    assert [rpc.call("pull", queue_name, 0)[b"retry"] for _ in range(3)] == [2, 7, 2]
    assert rpc.call("pull", queue_name + "-later", 0)[b"retry"] == 7


def test_change_is_in_effect_for_the_next_request(rpc: Rpc, queue_name: str) -> None:
    """3.2: a change that was acknowledged, or sent earlier on this connection, is in effect for the next request."""
    calls: list[tuple] = []
    for retry in range(20):
        calls += [("update_props", queue_name, {"retry": retry}), ("push", queue_name, retry)]
    rpc.many(calls)
    pulled = rpc.call("pull_many", queue_name, 20)
    assert [m[b"retry"] for m in pulled] == [m[b"content"] for m in pulled] == list(range(20))


# --- 5: accumulation --------------------------------------------------------------------------------------------------


def test_package_has_the_values_in_push_order(rpc: Rpc, queue_name: str) -> None:
    """5: parts keep push order; 10.3: a `package`, its content is the array of the parts' values."""
    rpc.call("update_props", queue_name, {"pack": 1})
    values = ["text", 1, None, {"a": [1.5]}, "x" * 40]
    flags = rpc.many([("push", queue_name, value) for value in values])
    assert [reply.result for reply in flags] == [b"packing started", *[b"packed"] * 4]
    message = rpc.call("pull", queue_name)
    assert list(message) == [b"queue", b"id", b"type", b"retry", b"content"]
    assert (message[b"type"], message[b"retry"]) == (b"package", 2)
    assert message[b"content"] == [b"text", 1, None, {b"a": [1.5]}, b"x" * 40]
    assert rpc.call("done", queue_name, message[b"id"]) == b"ok"
    assert rpc.call("pull", queue_name, 0) == b"empty"


def test_nothing_is_pulled_before_the_window_ends(rpc: Rpc, queue_name: str) -> None:
    """5: nothing of it can be pulled before the window ends."""
    rpc.call("update_props", queue_name, {"pack": 60})
    rpc.call("push", queue_name, 1)
    assert rpc.call("pull", queue_name, 0.3) == b"empty"
    assert rpc.call("pull_any", f"^{queue_name}$", 0) == b"empty"


def test_window_with_a_single_message_is_a_package(rpc: Rpc, queue_name: str) -> None:
    """5: a window with a single message still yields a compound message; a blocked puller gets it at the end."""
    rpc.call("update_props", queue_name, {"pack": 0.2})
    waiting = rpc.ask("pull", queue_name)
    pushed = rpc.ask("push", queue_name, "single")
    replies = {reply.msgid: reply.result for reply in (rpc.read(), rpc.read())}
    assert replies[pushed] == b"packing started"
    assert (replies[waiting][b"type"], replies[waiting][b"content"]) == (b"package", [b"single"])


def test_changing_accum_does_not_move_the_end_of_an_open_window(rpc: Rpc, queue_name: str) -> None:
    """5: the window is fixed when it opens; pushes join as long as accum is non-zero."""
    rpc.call("update_props", queue_name, {"pack": 1})
    replies = rpc.many([("push", queue_name, 1), ("update_props", queue_name, {"pack": 3600}), ("push", queue_name, 2)])
    assert [reply.result for reply in replies] == [b"packing started", b"ok", b"packed"]
    assert rpc.call("pull", queue_name)[b"content"] == [1, 2]


def test_with_accum_0_an_ordinary_message_is_stored_though_a_window_is_open(rpc: Rpc, queue_name: str) -> None:
    """5: with accum 0 the flag is `no`, even if a window is still open; set again, pushes join the open window."""
    rpc.call("update_props", queue_name, {"pack": 60})
    rpc.call("push", queue_name, "in the window")
    rpc.call("update_props", queue_name, {"pack": 0})
    assert rpc.call("push", queue_name, "ordinary") == b"ok"
    assert rpc.call("pull", queue_name, 0)[b"content"] == b"ordinary"
    rpc.call("update_props", queue_name, {"pack": 5})
    assert rpc.call("push", queue_name, "joins") == b"packed"


def test_negative_accum_is_a_window_that_has_already_ended(rpc: Rpc, queue_name: str) -> None:
    """3: a negative accum behaves like a window that has already ended."""
    rpc.call("update_props", queue_name, {"pack": -1})
    for number in range(2):
        assert rpc.call("push", queue_name, number) == b"packing started"
    for number in range(2):
        message = rpc.call("pull", queue_name, 0)
        assert (message[b"type"], message[b"content"]) == (b"package", [number])


def test_delivered_package_takes_no_more_messages(rpc: Rpc, queue_name: str) -> None:
    """5: once delivered or nacked a compound entry never takes more messages; the next push opens a new window."""
    rpc.call("update_props", queue_name, {"pack": 0.2})
    rpc.call("push", queue_name, 1)
    message = rpc.call("pull", queue_name)
    rpc.call("update_props", queue_name, {"pack": 60})
    assert rpc.call("push", queue_name, 2) == b"packing started"
    assert rpc.call("release", queue_name, message[b"id"]) == b"ok"
    assert rpc.call("push", queue_name, 3) == b"packed"
    assert rpc.call("pull", queue_name, 0)[b"content"] == [1]


def test_package_is_redelivered_as_a_whole(rpc: Rpc, queue_name: str) -> None:
    """5: delivery, redelivery, retry count, ack, nack, ext work on the whole; the retry count is that of the
    opening push.
    """
    rpc.call("update_props", queue_name, {"pack": 0.3, "retry": 5})
    rpc.many([("push", queue_name, 1), ("update_props", queue_name, {"retry": 0}), ("push", queue_name, 2)])
    first = rpc.call("pull", queue_name)
    assert (first[b"content"], first[b"retry"]) == ([1, 2], 5)
    assert rpc.call("retain", queue_name, first[b"id"]) == b"ok"
    assert rpc.call("release", queue_name, first[b"id"]) == b"ok"
    second = rpc.call("pull", queue_name, 0)
    assert (second[b"content"], second[b"retry"], second[b"type"]) == ([1, 2], 4, b"package")
    assert rpc.call("done", queue_name, second[b"id"]) == b"ok"
    assert rpc.error("done", queue_name, first[b"id"]) == b"throw:not_found"


def test_racing_pushes_open_one_window(node: NodeProcess, rpc: Rpc, queue_name: str) -> None:
    """5: two pushes racing on an idle queue must yield one `new` and one `yes`, never two windows."""
    names = [f"{queue_name}-{i}" for i in range(30)]
    rpc.many([("update_props", name, {"pack": 60}) for name in names])
    with open_rpc(node.rpc, 4) as connections:
        for name in names:
            for connection in connections:
                connection.ask("push", name, 1)
        answers = [[connection.read().result for _ in names] for connection in connections]
    for position in range(len(names)):
        assert sorted(a[position] for a in answers) == [b"packed", b"packed", b"packed", b"packing started"]
