"""LMQ's MessagePack-RPC methods, specification 10.2 and 10.3: results, arguments, errors."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from .cluster import NodeProcess
from .raw_rpc import Rpc, old, request

UUID4 = re.compile(rb"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}\Z")
DEAD_ID = "0fe7f7b1-0c4f-4bd0-8c4b-1f7e3f2d0c11"


@pytest.fixture
def rpc(node: NodeProcess) -> Iterator[Rpc]:
    with Rpc(node.rpc) as connection:
        yield connection


@pytest.fixture
def rules(rpc: Rpc) -> Iterator[Callable[[list], None]]:
    """Sets default rules and removes them afterwards."""
    yield lambda value: rpc.call("set_default_props", value)
    assert rpc.call("set_default_props", []) == b"ok"


# --- push, pull -------------------------------------------------------------------------------------------------------


def test_push_says_ok(rpc: Rpc, queue_name: str) -> None:
    """10.3 push: `ok`; 5: with accum 0 an ordinary message is stored."""
    assert rpc.call("push", queue_name, "content") == b"ok"


def test_push_into_a_window_says_packing_started_and_packed(rpc: Rpc, queue_name: str) -> None:
    """10.3 push: `packing started` (window opened), or `packed` (joined); 14: three results."""
    rpc.call("update_props", queue_name, {"pack": 60})
    assert rpc.call("push", queue_name, 1) == b"packing started"
    assert rpc.call("push", queue_name, 2) == b"packed"
    assert rpc.call("push", queue_name, 3) == b"packed"


@pytest.mark.parametrize(
    "content",
    [
        *(None, True, False, 0, -1, 2**64 - 1, -(2**63), 1.5, "", "text", "x" * 70000, b"\xff\x00"),
        *([], {}, [[[]]], {"a": {"b": [1, None]}}, {1: 2, None: 3, 1.5: 4}),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_content_is_any_value(rpc: Rpc, queue_name: str, content: object) -> None:
    """10.3 push: content is any value; 14: nil, true and false stay what they are."""
    assert rpc.call("push", queue_name, content) == b"ok"
    raw = rpc.exchange(request(1, "pull", queue_name, 0))
    assert raw.endswith(b"\xa7content" + old(content))


def test_maps_keep_the_order_of_their_keys(rpc: Rpc, queue_name: str) -> None:
    """16: RPC maps keep the key order of the push."""
    rpc.call("push", queue_name, {"z": 1, "a": 2, "m": 3})
    assert list(rpc.call("pull", queue_name, 0)[b"content"]) == [b"z", b"a", b"m"]


def test_pull_returns_a_message(rpc: Rpc, queue_name: str) -> None:
    """10.3: keys queue, id, type, retry, content in this order; type `normal`; 2.2: a fresh UUID v4; 2.3: retry 2."""
    rpc.call("push", queue_name, "content")
    message = rpc.call("pull", queue_name)
    assert list(message) == [b"queue", b"id", b"type", b"retry", b"content"]
    assert message[b"queue"] == queue_name.encode()
    assert UUID4.match(message[b"id"])
    assert (message[b"type"], message[b"retry"], message[b"content"]) == (b"normal", 2, b"content")


@pytest.mark.parametrize("timeout", [0, 0.0, -1, -0.5, 0.05, 1e-9, 5e-324], ids=repr)
def test_pull_with_timeout_says_empty(rpc: Rpc, queue_name: str, timeout: float) -> None:
    """10.3 pull: `empty` at the end of the wait; seconds, integer or float; 0 = do not wait."""
    assert rpc.call("pull", queue_name, timeout) == b"empty"


@pytest.mark.parametrize("timeout", [0, 0.0, 5, 0.5, 1e300, float("inf"), 2**63], ids=repr)
def test_pull_with_any_timeout_returns_a_ready_message(rpc: Rpc, queue_name: str, timeout: float) -> None:
    """10.3, defect: `pull` with a float 0.0 always said `empty`."""
    rpc.call("push", queue_name, 1)
    assert rpc.call("pull", queue_name, timeout)[b"content"] == 1


def test_pull_without_timeout_waits(rpc: Rpc, node: NodeProcess, queue_name: str) -> None:
    """10.3 pull(name): waits without limit."""
    waiting = rpc.ask("pull", queue_name)
    with Rpc(node.rpc) as other:
        other.settle()
        other.call("push", queue_name, "at last")
    reply = rpc.read()
    assert (reply.msgid, reply.result[b"content"]) == (waiting, b"at last")


# --- push_all, pull_any -----------------------------------------------------------------------------------------------


def test_push_all_reaches_every_queue_that_matches(rpc: Rpc, new_queue_name: Callable[[], str]) -> None:
    """10.3 push_all: `ok`; 8.4: a copy into every existing queue whose name matches, unanchored."""
    first, second, other = new_queue_name(), new_queue_name(), new_queue_name()
    for name in (first, second, other):
        rpc.call("update_props", name)
    assert rpc.call("push_all", f"({first}|{second})$", "to both") == b"ok"
    assert rpc.call("pull", first, 0)[b"content"] == b"to both"
    assert rpc.call("pull", second, 0)[b"content"] == b"to both"
    assert rpc.call("pull", other, 0) == b"empty"


def test_push_all_says_ok_when_nothing_matches(rpc: Rpc, queue_name: str) -> None:
    """10.3 push_all: `ok` also when nothing matches; 8.4: nothing is created."""
    assert rpc.call("push_all", f"^{queue_name}$", 1) == b"ok"
    assert rpc.call("pull_any", f"^{queue_name}$", 0) == b"empty"


def test_push_all_opens_and_joins_windows(rpc: Rpc, queue_name: str) -> None:
    """10.3 push_all: `ok` regardless of the outcome of each copy."""
    rpc.call("update_props", queue_name, {"pack": 60})
    assert rpc.call("push_all", f"^{queue_name}$", 1) == b"ok"
    assert rpc.call("push", queue_name, 2) == b"packed"


def test_pull_any_names_the_queue(rpc: Rpc, queue_name: str) -> None:
    """10.3 pull_any: a message as of pull, of any queue whose name matches."""
    rpc.call("push", queue_name, "x")
    message = rpc.call("pull_any", f"^{queue_name}", 0)
    assert (message[b"queue"], message[b"content"]) == (queue_name.encode(), b"x")
    assert rpc.call("done", message[b"queue"], message[b"id"]) == b"ok"


@pytest.mark.parametrize("timeout", [0, 0.0, 0.05], ids=repr)
def test_pull_any_without_match_says_empty(rpc: Rpc, queue_name: str, timeout: float) -> None:
    """10.3, defect: `pull_any` with timeout 0 and no match was never answered."""
    assert rpc.call("pull_any", f"^{queue_name}$", timeout) == b"empty"


def test_pull_any_without_timeout_waits(rpc: Rpc, node: NodeProcess, queue_name: str) -> None:
    """10.3, defect: `pull_any` without timeout crashed the matching queues."""
    rpc.call("update_props", queue_name)
    rpc.ask("pull_any", f"^{queue_name}$")
    with Rpc(node.rpc) as other:
        other.settle()
        other.call("push", queue_name, "x")
    assert rpc.read().result[b"content"] == b"x"


# --- done, retain, release --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["done", "retain", "release"])
def test_reply_says_ok(rpc: Rpc, queue_name: str, method: str) -> None:
    """10.3 done, retain, release: `ok`."""
    rpc.call("push", queue_name, 1)
    assert rpc.call(method, queue_name, rpc.call("pull", queue_name, 0)[b"id"]) == b"ok"


@pytest.mark.parametrize("method", ["done", "retain", "release"])
def test_reply_to_an_unknown_queue(rpc: Rpc, queue_name: str, method: str) -> None:
    """10.2: reply on an unknown queue `throw:queue_not_found`; 1: replying does not create the queue."""
    assert rpc.error(method, queue_name, DEAD_ID) == b"throw:queue_not_found"
    assert rpc.error(method, queue_name, DEAD_ID) == b"throw:queue_not_found"
    assert rpc.error(method, "n" * 300, DEAD_ID) == b"throw:queue_not_found"


@pytest.mark.parametrize("identifier", [DEAD_ID, DEAD_ID.upper(), "", "x", "x" * 36, "g" * 32, "0" * 10000])
@pytest.mark.parametrize("method", ["done", "retain", "release"])
def test_reply_with_an_unknown_id(rpc: Rpc, queue_name: str, method: str, identifier: str) -> None:
    """10.2: message id unknown, dead or malformed `throw:not_found`."""
    rpc.call("push", queue_name, 1)
    assert rpc.error(method, queue_name, identifier) == b"throw:not_found"


# --- delete -----------------------------------------------------------------------------------------------------------


def test_delete_takes_messages_and_properties(rpc: Rpc, queue_name: str) -> None:
    """10.3 delete: `ok`; 8.6: the queue, its messages and its own properties are gone."""
    rpc.call("update_props", queue_name, {"retry": 7})
    rpc.call("push", queue_name, 1)
    assert rpc.call("delete", queue_name) == b"ok"
    assert rpc.call("pull", queue_name, 0) == b"empty"
    rpc.call("push", queue_name, 2)
    assert rpc.call("pull", queue_name, 0)[b"retry"] == 2


def test_delete_of_an_absent_queue_says_ok(rpc: Rpc, queue_name: str) -> None:
    """10.3 delete: `ok` also when absent (14: follow the code)."""
    assert rpc.call("delete", queue_name) == b"ok"
    assert rpc.call("delete", queue_name) == b"ok"


@pytest.mark.parametrize("name", ["schema", "__lmq_info__", "__lmq_queue_info__"])
def test_names_of_internal_tables_are_ordinary(rpc: Rpc, name: str) -> None:
    """15.7: names that broke the original are queues like any other."""
    assert rpc.call("push", name, 1) == b"ok"
    assert rpc.call("pull", name, 0)[b"content"] == 1
    assert rpc.call("delete", name) == b"ok"


# --- properties -------------------------------------------------------------------------------------------------------


def test_update_props_creates_the_queue(rpc: Rpc, new_queue_name: Callable[[], str]) -> None:
    """10.3 update_props: `ok`, creates the queue, with and without properties."""
    first, second = new_queue_name(), new_queue_name()
    assert rpc.call("update_props", first) == b"ok"
    assert rpc.call("update_props", second, {"retry": 1}) == b"ok"
    for name in (first, second):
        assert rpc.error("done", name, DEAD_ID) == b"throw:not_found", "the queue is unknown"


@pytest.mark.parametrize(
    "properties",
    [
        {"unknown": 1},
        {"retry": "2"},
        {"retry": 1.0},
        {"retry": None},
        {"retry": True},
        {"timeout": "30"},
        {"timeout": float("nan")},
        {"timeout": float("inf")},
        {"timeout": None},
        {"pack": "1"},
        {"accum": [1]},
        {"accum": float("inf")},
        {"retry": 1, "unknown": 1},
        {1: 2},
        {b"\xff": 1},
        {"hooks": []},
        {"hooks": {"pre_http_push": [["unknown_module", []]]}},
        {"hooks": {"pre_http_push": [["lmq_hook_preserve_header"]]}},
        {"hooks": {"pre_http_push": "x"}},
        "retry",
        None,
        5,
        {"retry": -1},
        {"timeout": -0.5},
    ],
    ids=repr,
)
def test_invalid_properties_change_nothing(rpc: Rpc, queue_name: str, properties: object) -> None:
    """10.2: invalid property or rule list `throw:invalid`; 6: unknown hook modules and malformed lists are errors."""
    rpc.call("update_props", queue_name, {"retry": 5})
    assert rpc.error("update_props", queue_name, properties) == b"throw:invalid"
    rpc.call("push", queue_name, 1)
    assert rpc.call("pull", queue_name, 0)[b"retry"] == 5


@pytest.mark.parametrize(
    "value",
    [
        None,
        "x",
        {},
        [1],
        ["a"],
        [["a"]],
        [["a", {}, 1]],
        [["a", 1]],
        [[1, {}]],
        [["a", {"unknown": 1}]],
        [["a", {"retry": "1"}]],
        [["(", {"retry": 1}]],
        [["a", {}], ["[", {}]],
        [[b"\xff", {}]],
        [["x" * 5000, {}]],
    ],
    ids=lambda value: repr(value)[:40],
)
def test_invalid_rules_change_nothing(rpc: Rpc, rules: Callable[[list], None], value: object) -> None:
    """10.2: invalid property or rule list, invalid regular expressions included, `throw:invalid`."""
    rules([["^kept$", {"retry": 1}]])
    assert rpc.error("set_default_props", value) == b"throw:invalid"
    assert rpc.call("get_default_props") == [[b"^kept$", {b"retry": 1}]]


def test_get_default_props_shows_pack_as_float_seconds(rpc: Rpc, rules: Callable[[list], None]) -> None:
    """10.3 get_default_props: the rules as set; `accum` is shown as `pack`, a float in seconds."""
    assert rpc.call("get_default_props") == []
    hooks = {"pre_http_push": [["lmq_hook_preserve_header", ["user-agent"]]]}
    rules(
        [["a/.*", {"timeout": 5, "accum": 30, "retry": 0}], ["b", {"hooks": hooks}], ["", {"timeout": 1.5}], ["c", {}]]
    )
    raw = rpc.exchange(request(1, "get_default_props"))
    shown_hooks = {"pre_http_push": [["lmq_hook_preserve_header", ["user-agent"]]]}
    wanted = [["a/.*", {"timeout": 5, "pack": 30.0, "retry": 0}], ["b", {"hooks": shown_hooks}], ["", {"timeout": 1.5}]]
    assert raw == b"\x94\x01\x01\xc0" + old([*wanted, ["c", {}]])


# --- errors of calling ------------------------------------------------------------------------------------------------

ARITIES = {
    "push": {2, 3},
    "pull": {1, 2, 3},
    "push_all": {2},
    "pull_any": {1, 2},
    "done": {2},
    "retain": {2, 3},
    "release": {2, 3},
    "delete": {1},
    "update_props": {1, 2, 3},
    "set_default_props": {1},
    "get_default_props": {0},
    "push_many": {2, 3},
    "pull_many": {2, 3, 4},
    "done_many": {2, 3},
    "retain_many": {2, 3},
    "release_many": {2, 3},
    "put_back_many": {2, 3},
    "withdraw": {2, 3, 4},
    "count_labelled": {2},
    "redrive": {1, 2},
    "bind": {2},
    "unbind": {2},
    "bindings": {1},
    "transaction": {1, 2},
    "reserve_batch": {4},
    "read_batch": {4, 5, 6, 7},
    "cut_batch": {3},
    "incarnation": {0},
    "renew_batches": {2, 3},
    "settle_batches": {2, 3},
    "abandon_batches": {1, 2},
    "claim_subscription": {1},
    "delete_subscription": {1},
    "push_marked": {3},
    "mark": {2, 3},
    "begin_epoch": {3},
    "finish_epoch": {5},
    "end_jobs": {1, 2},
    "jobs": {0},
    "subscription": {1},
    "subscriptions": {0},
    "backlog": {2, 3, 4},
    "peek": {3, 4},
    "cancel": {1},
    "producer": {2},
    "ping": {0},
    "cluster": {0},
}


@pytest.mark.parametrize("method", ARITIES)
def test_wrong_number_of_arguments_is_undef(rpc: Rpc, queue_name: str, method: str) -> None:
    """10.2: wrong number of arguments `undef`."""
    for count in {0, 1, 2, 3, 4, 9} - ARITIES[method]:
        assert rpc.error(method, *[queue_name] * count) == b"undef", count


@pytest.mark.parametrize(
    "method",
    [
        "create",
        "props",
        "module_info",
        "start_link",
        "Push",
        "push ",
        "",
        "p" * 100000,
        b"\xff\x00",
        1,
        None,
        ["push"],
        {},
    ],
    ids=lambda value: repr(value)[:20],
)
def test_unknown_and_removed_methods_are_undef(rpc: Rpc, method: object) -> None:
    """10.2: removed method such as `create` `undef`; 10.1, defect: a name never seen, or no string, was never
    answered; 15.14.
    """
    for arguments in ((), ("q",), ("q", 1)):
        rpc.send(request(1, method, *arguments))
        reply = rpc.read()
        assert (reply.error, reply.result) == (b"undef", None)


@pytest.mark.parametrize("arguments", [None, 1, "q", {"q": 1}], ids=repr)
def test_arguments_other_than_an_array_are_an_error(rpc: Rpc, arguments: object) -> None:
    """10.1, defect: an argument list that is not an array was never answered."""
    rpc.send(old([0, 1, "pull", arguments]))
    assert rpc.read().error == b"function_clause"


NO_STRINGS: list[object] = [None, 1, 1.5, True, ["q"], {"q": 1}]
MARK = {"job": "j", "stream": "s", "first": 0}
NO_TIMEOUTS: list[object] = [None, "0", "infinity", True, [], float("nan")]


@pytest.mark.parametrize(
    ("method", "good", "position", "wrong"),
    [
        ("push", ["q", 1], 0, NO_STRINGS),
        ("pull", ["q", 0], 0, NO_STRINGS),
        ("pull", ["q", 0], 1, NO_TIMEOUTS),
        ("push_all", ["q", 1], 0, NO_STRINGS),
        ("pull_any", ["q", 0], 0, NO_STRINGS),
        ("pull_any", ["q", 0], 1, NO_TIMEOUTS),
        ("done", ["q", "i"], 0, NO_STRINGS),
        ("done", ["q", "i"], 1, NO_STRINGS),
        ("retain", ["q", "i"], 1, NO_STRINGS),
        ("release", ["q", "i"], 1, NO_STRINGS),
        ("delete", ["q"], 0, NO_STRINGS),
        ("update_props", ["q"], 0, NO_STRINGS),
        ("push_many", ["q", [1]], 0, NO_STRINGS),
        ("push_many", ["q", [1]], 1, ["x", None, 1, {}]),
        ("pull_many", ["q", 1, 0], 0, NO_STRINGS),
        ("pull_many", ["q", 1, 0], 1, [None, "1", 0, -1, 1.0, True, 10**6, []]),
        ("pull_many", ["q", 1, 0], 2, NO_TIMEOUTS),
        ("done_many", ["q", ["i"]], 1, ["i", None, [1], [None], {}]),
        ("done_many", ["q", ["i"], {"again": True}], 2, [{}, {"again": 1}, {"again": True, "x": 1}, True, None]),
        ("push_many", ["q", [1], {"keys": ["k"]}], 2, [{"keys": "k"}, {"keys": ["k"], "scope": "s"}]),
        ("update_props", ["q", {"retry": 1}], 1, [[], [1], [["retry", 1]]]),
        ("push_marked", ["q", [1], MARK], 1, ["x", None, {}]),
        ("push_marked", ["q", [1], MARK], 2, [{}, None, {**MARK, "x": 1}, {**MARK, "first": "0"}, {**MARK, "done": 1}]),
        (
            "push_marked",
            ["q", [1], MARK],
            2,
            [{**MARK, "options": one} for one in (1, [], [1], [{"x": 1}], [{"ttl": "1"}])],
        ),
        ("begin_epoch", ["j", 0, "r"], 1, ["0", None, 1.5]),
        ("finish_epoch", ["j", 0, "r", 0, "0" * 16], 3, ["0", None]),
        ("mark", ["j", "s", 0], 2, ["0", -1, None]),
        ("end_jobs", [["j"]], 0, ["j", [1], None]),
        ("claim_subscription", ["s"], 0, NO_STRINGS),
        ("delete_subscription", ["s"], 0, NO_STRINGS),
        ("reserve_batch", ["s", 1, "q", {"pattern": False, "count": 1, "lease": 1}], 0, NO_STRINGS),
        ("reserve_batch", ["s", 1, "q", {"pattern": False, "count": 1, "lease": 1}], 1, ["1", None, 1.0, True]),
        ("reserve_batch", ["s", 1, "q", {"pattern": False, "count": 1, "lease": 1}], 2, NO_STRINGS),
        (
            "reserve_batch",
            ["s", 1, "q", {"pattern": False, "count": 1, "lease": 1}],
            3,
            [{}, None, {"pattern": 0, "count": 1, "lease": 1}, {"pattern": False, "count": 1, "lease": "1"}],
        ),
        ("read_batch", ["s", 1, 0, 1], 2, ["0", None, -1, 0.0]),
        ("read_batch", ["s", 1, 0, 1], 3, ["0", None, 1.0]),
        ("read_batch", ["s", 1, 0, 1, 1], 4, ["0", 0, 1.0]),
        ("read_batch", ["s", 1, 0, 1, None, True], 5, ["yes", None, 1]),
        ("read_batch", ["s", 1, 0, 1, None, True, True], 6, ["yes", None, 1]),
        ("cut_batch", ["s", 1, 1], 2, ["0", None, 1.0]),
        ("renew_batches", ["s", 1], 1, ["1", None, [], True]),
        ("settle_batches", ["s", 1], 1, ["1", None, 1.0]),
        ("abandon_batches", ["s"], 0, NO_STRINGS),
        ("subscription", ["s"], 0, NO_STRINGS),
        ("backlog", ["q", False], 1, [0, None, "q"]),
        ("peek", ["q", 1, 0], 2, ["0", None, 0.0]),
        ("peek", ["q", 1, 0, True], 3, ["yes", None, 1]),
        ("producer", ["p" * 16, 1], 0, [None, 1, "short", "p" * 65]),
        ("producer", ["p" * 16, 1], 1, [None, "1", 0, -1, 1.0, 2**63]),
    ],
)
def test_arguments_of_the_wrong_type_are_function_clause(
    rpc: Rpc, method: str, good: list[object], position: int, wrong: list[object]
) -> None:
    """10.2: argument of the wrong type `function_clause`; 10.3, defect: nil or string timeouts crashed the queue."""
    for value in wrong:
        arguments = [*good]
        arguments[position] = value
        assert rpc.error(method, *arguments) == b"function_clause", value
    rpc.settle()


@pytest.mark.parametrize("method", ["push_all", "pull_any"])
@pytest.mark.parametrize("pattern", ["(", "[", "*", "a{2,1}", r"(?P<n", b"\\C(?=x)", r"(a)\1", "(a{1000}){1000}"])
def test_invalid_regular_expressions(rpc: Rpc, method: str, pattern: str | bytes) -> None:
    """10.2: invalid regular expression `throw:invalid_regexp`; 10.3, defect: pull_any with one was never answered."""
    arguments = [pattern, 1] if method == "push_all" else [pattern]
    assert rpc.error(method, *arguments) == b"throw:invalid_regexp"


@pytest.mark.parametrize(
    ("name", "part"), [("", "1 to 255"), ("n" * 256, "256"), ("a\nb", "control"), ("a\x00", "control")]
)
@pytest.mark.parametrize("method", ["push", "pull", "update_props", "push_many", "pull_many"])
def test_invalid_queue_names(rpc: Rpc, method: str, name: str, part: str) -> None:
    """7.1: 1 to 255 bytes, no control characters; the error says what is wrong."""
    by_method: dict[str, list[Any]] = {
        "push": [1],
        "pull": [0],
        "update_props": [],
        "push_many": [[1]],
        "pull_many": [1],
    }
    text = rpc.error(method, name, *by_method[method])
    assert text.startswith(b"bad_name: ")
    assert part.encode() in text


@pytest.mark.parametrize("name", [b"\xff\xfe", "テスト", " ", "a/b?c=d&e", ".", "..", "'\"<>", "n" * 255])
def test_any_other_name_is_allowed(rpc: Rpc, name: str | bytes) -> None:
    """7.1: the name is a byte string of 1 to 255 bytes; UTF-8 is not enforced."""
    assert rpc.call("push", name, 1) == b"ok"
    message = rpc.call("pull", name, 0)
    assert message[b"queue"] == (name.encode() if isinstance(name, str) else name)
    assert rpc.call("done", name, message[b"id"]) == b"ok"
    assert rpc.call("delete", name) == b"ok"
