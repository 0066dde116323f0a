"""Options of the MessagePack-RPC methods beyond LMQ's, against a real node."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from lmqcluster.protocols.msgpack_rpc.connection.stream import UNREAD_BYTES_MAX

from .cluster import NodeProcess
from .guarded_node import Guarded, guarded_node
from .raw_http import call as http_call
from .raw_rpc import OLD_TYPES_ONLY, Rpc, contents, is_error, notification, pull_all, types_of

DEADLINE_S = 180.0


@pytest.fixture
def rpc(node: NodeProcess) -> Iterator[Rpc]:
    with Rpc(node.rpc) as connection:
        yield connection


@pytest.fixture
def typed(node: NodeProcess) -> Iterator[Rpc]:
    """A connection of a producer, whose messages have more keys."""
    with Rpc(node.rpc) as connection:
        assert connection.call("producer", f"producer {time.time_ns()}", 1) == b"ok"
        yield connection


# --- the sequence of a message ----------------------------------------------------------------------------------------


def delivered_sequences(node: NodeProcess, queue: str) -> list[int]:
    body = json.dumps({"max": 100, "timeout": 30}).encode()
    answer = http_call(node.http, "POST", f"/v1/queues/{queue}/pull", body, {"Content-Type": "application/json"})
    return [message["sequence"] for message in answer.json["messages"]]


def test_a_push_returns_the_sequence_on_request(rpc: Rpc, node: NodeProcess, queue_name: str) -> None:
    asked = {"sequence": True}
    pushes = [
        rpc.call("push", queue_name, "plain", asked),
        rpc.call("push", queue_name, "keyed", {**asked, "key": "k"}),
        rpc.call("push", queue_name, "labelled", {**asked, "label": "x"}),
        rpc.call("push", queue_name, "waits", {**asked, "wait": 5}),
        *rpc.call("push_many", queue_name, ["one", "two"], asked),
        *rpc.call("push_many", queue_name, ["three"], {**asked, "keys": ["k3"]}),
        *rpc.call("push_many", queue_name, ["four"], {**asked, "options": [{"label": "y"}]}),
    ]
    assert {text for text, _sequence in pushes} == {b"ok"}
    sequences = [sequence for _text, sequence in pushes]
    assert sequences == sorted(set(sequences))
    assert rpc.call("push", queue_name, "keyed", {**asked, "key": "k"}) == pushes[1]
    assert delivered_sequences(node, queue_name) == sequences
    assert rpc.call("push", queue_name, "not asked", {"sequence": False}) == b"ok"
    assert rpc.call("push_many", queue_name, ["not asked"], {"sequence": False, "keys": [None]}) == [b"ok"]


def test_the_sequence_is_that_of_the_window(rpc: Rpc, node: NodeProcess, queue_name: str) -> None:
    rpc.call("update_props", queue_name, {"accum": 0.2})
    opened = rpc.call("push", queue_name, "1", {"sequence": True})
    assert opened[0] == b"packing started"
    assert rpc.call("push", queue_name, "2", {"sequence": True}) == [b"packed", None]
    assert delivered_sequences(node, queue_name) == [opened[1]]


def test_pushes_of_a_producer_that_ask_for_the_sequence_take_numbers(node: NodeProcess, queue_name: str) -> None:
    producer = f"producer {time.time_ns()}"
    with Rpc(node.rpc) as first:
        first.call("producer", producer, 1)
        (_ok, sequence) = first.call("push", queue_name, "1", {"sequence": True})
        ((_ok, second),) = first.call("push_many", queue_name, ["2"], {"sequence": True})
    with Rpc(node.rpc) as again:
        again.call("producer", producer, 2)
        assert again.call("push", queue_name, "2", {"sequence": True}) == [b"ok", None], "it was stored before"
        (_ok, third) = again.call("push", queue_name, "3", {"sequence": True})
    assert delivered_sequences(node, queue_name) == [sequence, second, third]


def test_a_full_queue_returns_no_sequence(rpc: Rpc, queue_name: str) -> None:
    rpc.call("update_props", queue_name, {"max_items": 1})
    assert is_error(rpc.error("push_many", queue_name, ["1", "2"], {"sequence": True}), "full")
    assert pull_all(rpc, queue_name) == [], "all or none"
    rpc.call("push", queue_name, "1", {"sequence": True})
    assert is_error(rpc.error("push", queue_name, "2", {"sequence": True}), "full")


@pytest.mark.parametrize("options", [{"sequence": 1}, {"sequence": "yes"}])
def test_the_option_sequence_is_a_boolean(rpc: Rpc, queue_name: str, options: dict[str, Any]) -> None:
    assert rpc.error("push", queue_name, "1", options) == b"function_clause"
    assert rpc.error("push_many", queue_name, ["1"], options) == b"function_clause"


# --- a full queue -----------------------------------------------------------------------------------------------------


def test_a_full_queue_refuses_a_push(rpc: Rpc, queue_name: str) -> None:
    rpc.call("update_props", queue_name, {"max_items": 1})
    assert rpc.call("push", queue_name, "1") == b"ok"
    error = rpc.error("push", queue_name, "2")
    assert is_error(error, "full")
    assert queue_name.encode() in error
    assert is_error(rpc.error("push", queue_name, "2", {"key": "k"}), "full")
    assert is_error(rpc.error("push", queue_name, "2", {"label": "x"}), "full")
    assert pull_all(rpc, queue_name) == [b"1"]


def test_a_queue_refuses_a_body_that_is_too_large_for_it(rpc: Rpc, queue_name: str) -> None:
    rpc.call("update_props", queue_name, {"max_item_size": 4})
    assert rpc.call("push", queue_name, "123") == b"ok"
    assert is_error(rpc.error("push", queue_name, "1234"), "too_large")


def test_of_pipelined_pushes_those_that_fit_are_stored(typed: Rpc, queue_name: str) -> None:
    """They share a command; and a refusal blocks no later push of the producer."""
    other = f"{queue_name}-other"
    typed.call("update_props", queue_name, {"max_items": 2})
    replies = typed.many([*(("push", queue_name, f"{number}") for number in range(4)), ("push", other, "x")])
    assert [reply.result for reply in replies] == [b"ok", b"ok", None, None, b"ok"]
    assert all(is_error(reply.error, "full") for reply in replies[2:4])
    assert pull_all(typed, queue_name) == [b"0", b"1"]
    assert typed.call("push", queue_name, "4") == b"ok"
    assert pull_all(typed, queue_name) == [b"4"]
    assert pull_all(typed, other) == [b"x"]


def test_a_refused_push_that_is_resent_is_tried_again(typed: Rpc, queue_name: str) -> None:
    """It keeps its old number, although a later one has been stored."""
    producer = f"again {time.time_ns()}"
    typed.call("producer", producer, 1)
    typed.call("update_props", queue_name, {"max_items": 0})
    first, later = typed.many([("push", queue_name, "x"), ("push", f"{queue_name}-other", "y")])
    assert is_error(first.error, "full")
    assert later.result == b"ok"
    typed.call("update_props", queue_name, {"max_items": None})
    typed.call("producer", producer, 1)
    assert [reply.result for reply in typed.many([("push", queue_name, "x")] * 1)] == [b"ok"]
    assert pull_all(typed, queue_name) == [b"x"]


def test_a_batch_that_fits_in_part_is_reported(rpc: Rpc, queue_name: str) -> None:
    rpc.call("update_props", queue_name, {"max_items": 2})
    error = rpc.error("push_many", queue_name, ["1", "2", "3"])
    assert is_error(error, "stored_in_part")
    assert b"1 of 3 messages" in error
    assert is_error(rpc.error("push_many", queue_name, ["3", "4"]), "full")
    assert is_error(rpc.error("push_many", queue_name, ["3"], {"keys": ["k"]}), "full")
    assert pull_all(rpc, queue_name) == [b"1", b"2"]


def test_a_batch_with_options_is_stored_entirely_or_not_at_all(rpc: Rpc, queue_name: str) -> None:
    rpc.call("update_props", queue_name, {"max_items": 2})
    options = {"options": [{"label": "x"}, None, None]}
    assert is_error(rpc.error("push_many", queue_name, ["1", "2", "3"], options), "full")
    assert pull_all(rpc, queue_name) == []


def test_refused_copies_are_reported(rpc: Rpc, queue_name: str) -> None:
    for letter in "abc":
        rpc.call("update_props", f"{queue_name}-{letter}", {"max_items": 1 if letter == "b" else 0})
    error = rpc.error("push_all", f"^{queue_name}-", "x")
    assert is_error(error, "stored_in_part")
    assert b"2 of 3 queues" in error
    assert f"{queue_name}-a".encode() in error
    assert is_error(rpc.error("push_all", f"^{queue_name}-a$", "x"), "full")
    assert pull_all(rpc, f"{queue_name}-b") == [b"x"]


# --- push -------------------------------------------------------------------------------------------------------------


def test_messages_are_delivered_by_priority(rpc: Rpc, queue_name: str) -> None:
    assert rpc.call("push", queue_name, "later", {"priority": 5}) == b"ok"
    rpc.call("push", queue_name, "plain")
    rpc.call("push", queue_name, {"a": [1]}, {"priority": -1})
    assert pull_all(rpc, queue_name) == [{b"a": [1]}, b"plain", b"later"]


def test_a_delayed_message_is_delivered_when_it_is_due(rpc: Rpc, queue_name: str) -> None:
    begun_s = time.monotonic()
    rpc.call("push", queue_name, "delayed", {"delay": 0.5})
    rpc.call("push", queue_name, "due", {"due": time.time() + 0.5})
    assert pull_all(rpc, queue_name) == []
    assert {rpc.call("pull", queue_name, 60)[b"content"] for _ in range(2)} == {b"delayed", b"due"}
    assert time.monotonic() - begun_s >= 0.5


def test_a_message_is_not_delivered_after_its_expiry(rpc: Rpc, queue_name: str) -> None:
    rpc.call("update_props", queue_name, {"expire_to_queue": f"{queue_name}-expired"})
    rpc.call("push", queue_name, "stale", {"ttl": 0.2})
    assert rpc.call("pull", f"{queue_name}-expired", 60)[b"content"] == b"stale"
    assert pull_all(rpc, queue_name) == []


def test_a_group_is_delivered_one_at_a_time(rpc: Rpc, queue_name: str) -> None:
    options = [{"group": "tenant"}, {"group": "tenant"}, None]
    assert rpc.call("push_many", queue_name, ["1", "2", "other"], {"options": options}) == [b"ok"] * 3
    first, _other = rpc.call("pull_many", queue_name, 10)
    assert first[b"content"] == b"1"
    assert rpc.call("done", queue_name, first[b"id"]) == b"ok"
    assert rpc.call("pull", queue_name, 60)[b"content"] == b"2"


def test_a_key_deduplicates_pushes_with_options(rpc: Rpc, queue_name: str) -> None:
    for _ in range(2):
        assert rpc.call("push", queue_name, "x", {"key": "k", "label": "l"}) == b"ok"
        batch = {"keys": ["a", None], "options": [{"priority": 1}, None], "content_types": [None, "text/plain"]}
        assert rpc.call("push_many", queue_name, ["y", "z"], batch) == [b"ok"] * 2
    assert is_error(rpc.error("push", queue_name, "other", {"key": "k", "label": "l"}), "key_reused")
    assert pull_all(rpc, queue_name) == [b"x", b"z", b"z", b"y"]


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"delay": -1}, "bad_request"),
        ({"delay": 1, "due": 1}, "bad_request"),
        ({"delay": 1e300}, "bad_request"),
        ({"delay": float("nan")}, "bad_request"),
        ({"due": -1}, "bad_request"),
        ({"due": float("inf")}, "bad_request"),
        ({"ttl": 0}, "bad_request"),
        ({"priority": 1 << 31}, "bad_request"),
        ({"delay": "1"}, None),
        ({"delay": True}, None),
        ({"priority": 0.5}, None),
        ({"label": "x" * 256}, None),
        ({"group": ""}, None),
        ({"group": 1}, None),
        ({"other": 1}, None),
        ({"keys": ["k"]}, None),
        (1, None),
    ],
    ids=str,
)
def test_wrong_options_are_refused(rpc: Rpc, queue_name: str, options: Any, code: str | None) -> None:
    each = {"options": [None, options]}
    for error in (rpc.error("push", queue_name, "x", options), rpc.error("push_many", queue_name, ["x", "y"], each)):
        assert is_error(error, code) if code else error == b"function_clause"
    assert pull_all(rpc, queue_name) == []


@pytest.mark.parametrize(
    "options",
    [
        {"options": [None]},
        {"options": {}},
        {"options": [{}, {}], "keys": ["a"]},
        {"options": [{"key": "k"}, {}]},
        {"content_types": ["a", "b"]},
        {"options": None},
    ],
    ids=str,
)
def test_wrong_options_of_a_batch_are_refused(rpc: Rpc, queue_name: str, options: Any) -> None:
    assert rpc.error("push_many", queue_name, ["x", "y"], options) == b"function_clause"


def test_pushes_without_keys_take_numbers_of_their_producer(tmp_path: Path) -> None:
    """This holds for refused pushes too: client and node count separately."""

    async def main(guarded: Guarded) -> None:
        rpc = await guarded.connect(await guarded.token("worker", "write", "^jobs"))
        assert (await rpc.call("producer", "a producer", 1))[0] is None
        calls: list[tuple[tuple[Any, ...], int]] = [
            (("push", "jobs", "x"), 1),
            (("push", "jobs", "x", {"label": None}), 1),
            (("push", "jobs", "x", {"label": "l"}), 1),
            (("push", "jobs", "x", {"label": "l", "key": "k"}), 0),
            (("push", "jobs", "x", {"wait": 1}), 0),
            (("push", "jobs", "x", {"wait": 0}), 1),
            (("push", "theirs", "x", {"label": "l"}), 1),
            (("push", "theirs", "x", {"label": "l", "key": "k"}), 0),
            (("push", "theirs", "x", {"label": None}), 1),
            (("push_many", "jobs", ["x", "y"], {"options": [None, {"priority": 1}]}), 2),
            (("push_many", "jobs", ["x"], {"options": [None], "keys": ["k2"]}), 0),
            (("push_many", "jobs", ["x"], {"keys": [None]}), 0),
            (("push_many", "theirs", ["x"], {"options": [None]}), 1),
            (("push_many", "jobs", ["x", "y"]), 2),
            (("push_many", "jobs", ["x", "y"], {}), 2),
        ]
        expected = 1
        (connection,) = guarded.rpc._connections
        for call, count in calls:
            error, _ = await rpc.call(*call)
            assert (error is None) == (call[1] == "jobs")
            expected += count
            assert connection.next_sequence == expected, call

    on_guarded_node(tmp_path, main)


# --- pull and settle --------------------------------------------------------------------------------------------------


def test_a_pull_may_set_its_lease(rpc: Rpc, queue_name: str) -> None:
    rpc.call("push_many", queue_name, ["1", "2"])
    first = rpc.call("pull", queue_name, 0, {"lease": 0.2})
    assert first[b"content"] == b"1"
    assert contents(rpc.call("pull_many", queue_name, 10, 0, {"lease": 0.2})) == [b"2"]
    again = [rpc.call("pull", queue_name, 60, {"lease": 600}) for _ in range(2)]
    assert sorted(contents(again)) == [b"1", b"2"]
    assert rpc.error("done", queue_name, first[b"id"]) == b"throw:not_found"


def test_a_pull_with_a_lease_waits_and_can_be_cancelled(node: NodeProcess, rpc: Rpc, queue_name: str) -> None:
    msgid = rpc.ask("pull", queue_name, 3600, {"lease": 60})
    with Rpc(node.rpc) as other:
        other.call("push", queue_name, "x")
    reply = rpc.read()
    assert (reply.msgid, reply.result[b"content"]) == (msgid, b"x")
    for options in ({"lease": 60}, {"auto_ack": True}):
        msgid = rpc.ask("pull", queue_name, 3600, options)
        rpc.send(notification("cancel", msgid))
        assert rpc.read().result == b"empty"


def test_auto_ack_leaves_no_lease(rpc: Rpc, queue_name: str) -> None:
    rpc.call("push_many", queue_name, ["1", "2", "3", {"a": 1}])
    first = rpc.call("pull", queue_name, 0, {"auto_ack": True})
    assert first[b"content"] == b"1"
    assert rpc.error("done", queue_name, first[b"id"]) == b"throw:not_found"
    rest = rpc.call("pull_many", queue_name, 2, 0, {"auto_ack": True, "lease": 60})
    assert contents(rest) == [b"2", b"3"]
    assert rpc.call("done_many", queue_name, [one[b"id"] for one in rest]) == [False, False]
    assert contents(rpc.call("pull_many", queue_name, 10, 0, {"auto_ack": True})) == [{b"a": 1}]
    assert rpc.call("pull", queue_name, 0, {"auto_ack": True}) == b"empty"
    assert rpc.call("pull_many", queue_name, 10, 0, {"auto_ack": True}) == []


def test_auto_ack_takes_nothing_that_the_client_has_no_room_for(node: NodeProcess, rpc: Rpc, queue_name: str) -> None:
    """The client reads nothing; messages that are not sent to it are not acknowledged."""
    size = 4 * 1024 * 1024
    count = 2 * UNREAD_BYTES_MAX // size
    with Rpc(node.rpc) as lazy:
        for _ in range(count):
            rpc.call("push", queue_name, b"x" * size)
        msgids = [lazy.ask("pull", queue_name, 0, {"auto_ack": True}) for _ in range(count)]
        replies = [lazy.read() for _ in msgids]
        sent = [reply.result for reply in replies if reply.error is None]
        refused = [reply.error for reply in replies if reply.error is not None]
    assert all(is_error(error, "overloaded") for error in refused)
    assert all(len(message[b"content"]) == size for message in sent)
    assert rpc.call("purge", queue_name) == count - len(sent)


def test_a_notification_cannot_acknowledge_what_it_pulls(rpc: Rpc, queue_name: str) -> None:
    rpc.call("push", queue_name, "x")
    rpc.send(notification("pull", queue_name, 0, {"auto_ack": True}))
    rpc.send(notification("pull_many", queue_name, 1, 0, {"auto_ack": True}))
    assert rpc.call("pull", queue_name, 0)[b"content"] == b"x"


def test_a_message_returns_to_the_head_or_after_a_delay(rpc: Rpc, queue_name: str) -> None:
    rpc.call("push_many", queue_name, ["1", "2", "3"])
    first, second = rpc.call("pull_many", queue_name, 2)
    assert rpc.call("release", queue_name, second[b"id"], {"place": "head"}) == b"ok"
    assert rpc.call("release_many", queue_name, [first[b"id"]], {"place": "head"}) == [True]
    again = rpc.call("pull_many", queue_name, 10)
    assert contents(again) == [b"1", b"2", b"3"]
    assert rpc.call("release", queue_name, again[0][b"id"], {"delay": 600}) == b"ok"
    assert rpc.call("release_many", queue_name, [again[1][b"id"]], {"delay": 600, "again": True}) == [True]
    assert pull_all(rpc, queue_name) == []
    assert rpc.call("release_many", queue_name, [again[1][b"id"]], {"delay": 600, "again": True}) == [True]
    assert rpc.call("release_many", queue_name, [again[1][b"id"]], {"delay": 600}) == [False]
    assert rpc.error("release", queue_name, again[1][b"id"], {"delay": 600}) == b"throw:not_found"
    assert rpc.error("release", f"{queue_name}-none", again[1][b"id"], {"delay": 600}) == b"throw:queue_not_found"


def test_a_lease_is_extended_by_its_own_time(rpc: Rpc, queue_name: str) -> None:
    rpc.call("push_many", queue_name, ["1", "2"])
    first, second = rpc.call("pull_many", queue_name, 2)
    assert rpc.call("retain", queue_name, first[b"id"], {"lease": 0.2}) == b"ok"
    assert rpc.call("retain_many", queue_name, [second[b"id"]], {"lease": 0.2}) == [True]
    assert sorted(rpc.call("pull", queue_name, 60)[b"content"] for _ in range(2)) == [b"1", b"2"]
    assert rpc.error("retain", queue_name, first[b"id"], {"lease": 1}) == b"throw:not_found"


@pytest.mark.parametrize(
    ("call", "code"),
    [
        (("pull", "q", 0, {"lease": 0}), "bad_request"),
        (("pull", "q", 0, {"lease": float("nan")}), "bad_request"),
        (("pull_many", "q", 1, 0, {"lease": -1}), "bad_request"),
        (("release", "q", "i", {"delay": -1}), "bad_request"),
        (("release", "q", "i", {"place": "middle"}), "bad_request"),
        (("retain", "q", "i", {"lease": 0}), "bad_request"),
        (("pull", "q", 0, {"lease": "1"}), None),
        (("pull", "q", 0, {"auto_ack": 1}), None),
        (("pull", "q", 0, {"x": 1}), None),
        (("pull", "q", None, {}), None),
        (("pull_many", "q", 1, 0, 1), None),
        (("release", "q", "i", {"place": 1}), None),
        (("release", "q", "i", {"again": True}), None),
        (("release_many", "q", ["i"], {"lease": 1}), None),
        (("done", "q", "i", {"delay": 1}), "undef"),
        (("done_many", "q", ["i"], {"delay": 1}), None),
        (("retain_many", "q", ["i"], {"again": True}), None),
    ],
    ids=str,
)
def test_wrong_options_of_pulls_and_settlements_are_refused(rpc: Rpc, call: Any, code: str | None) -> None:
    error = rpc.error(*call)
    assert error == b"undef" if code == "undef" else is_error(error, code) if code else error == b"function_clause"


def test_a_producer_gets_the_push_options_of_a_message(rpc: Rpc, typed: Rpc, queue_name: str) -> None:
    dead = f"{queue_name}-dead"
    typed.call("update_props", queue_name, {"retry": 0, "dead_letter_queue": dead})
    before_s = time.time()
    typed.call("push", queue_name, "x", {"priority": -3, "label": "l", "group": "g"})
    message = typed.call("pull", queue_name)
    assert list(message)[:5] == [b"queue", b"id", b"type", b"retry", b"content"]
    assert (message[b"delivery"], message[b"priority"], message[b"label"], message[b"group"]) == (1, -3, b"l", b"g")
    assert type(message[b"pushed_at"]) is float
    assert abs(message[b"pushed_at"] - before_s) < 600
    assert b"origin" not in message
    typed.call("release", queue_name, message[b"id"])
    msgid = typed.ask("pull", dead)
    reply = typed.read()
    assert reply.msgid == msgid
    assert types_of(reply.raw) <= OLD_TYPES_ONLY
    letter = reply.result
    origin = letter[b"origin"]
    assert (origin[b"queue"], origin[b"reason"], origin[b"deliveries"]) == (queue_name.encode(), b"exhausted", 1)
    assert type(origin[b"sequence"]) is int
    typed.call("push", queue_name, "plain")
    assert len(typed.call("pull", queue_name)) == 5
    rpc.call("push", queue_name, "y", {"label": "l"})
    assert len(rpc.call("pull", queue_name)) == 5, "LMQ's clients do not know these keys"


# --- labels, dead letters, bindings -----------------------------------------------------------------------------------


def test_labels_are_counted_and_withdrawn(rpc: Rpc, queue_name: str) -> None:
    rpc.call("push_many", queue_name, ["1", "2", "3"], {"options": [{"label": "x"}, {"label": "x"}, {"label": "y"}]})
    assert rpc.call("count_labelled", queue_name, "x") == 2
    assert rpc.call("withdraw", queue_name, "x", 1) == 1
    assert rpc.call("withdraw", queue_name, "x") == 1
    assert rpc.call("count_labelled", queue_name, "x") == 0
    assert pull_all(rpc, queue_name) == [b"3"]
    for method in ("withdraw", "count_labelled"):
        assert rpc.error(method, f"{queue_name}-none", "x") == b"throw:queue_not_found"
        assert is_error(rpc.error(method, queue_name, ""), "bad_request")
        assert rpc.error(method, queue_name, 1) == b"function_clause"
    assert rpc.error("withdraw", queue_name, "x", "1") == b"function_clause"
    for wrong in ("kind", ["kind"], ["kind", 1], ["kind", b"\xff"]):
        assert rpc.error("withdraw", queue_name, "x", None, wrong) == b"function_clause"
    assert is_error(rpc.error("withdraw", queue_name, "x", 0), "bad_request")


def test_dead_letters_are_redriven(rpc: Rpc, queue_name: str) -> None:
    dead = f"{queue_name}-dead"
    rpc.call("update_props", queue_name, {"retry": 0, "dead_letter_queue": dead})
    options = {"options": [{"label": "l"}, None, None]}
    rpc.call("push_many", queue_name, ["1", "2", "3"], options)
    rpc.call("release_many", queue_name, [one[b"id"] for one in rpc.call("pull_many", queue_name, 3)])
    assert rpc.call("redrive", dead, {"label": "other"}) == 0
    assert rpc.call("redrive", dead, {"label": "l"}) == 1
    assert rpc.call("redrive", dead, {"max": 1, "to": f"{queue_name}-else"}) == 1
    assert rpc.call("redrive", dead) == 1
    assert pull_all(rpc, queue_name) == [b"1", b"3"]
    assert pull_all(rpc, f"{queue_name}-else") == [b"2"]
    assert rpc.error("redrive", f"{queue_name}-none") == b"throw:queue_not_found"
    assert is_error(rpc.error("redrive", dead, {"to": dead}), "bad_request")
    assert is_error(rpc.error("redrive", dead, {"max": 0}), "bad_request")
    for wrong in ({"to": 1}, {"label": ""}, {"max": "1"}, {"x": 1}, []):
        assert rpc.error("redrive", dead, wrong) == b"function_clause"


def test_bound_queues_get_copies(rpc: Rpc, queue_name: str) -> None:
    copy = f"{queue_name}-copy"
    assert rpc.call("bind", queue_name, copy) is True
    assert rpc.call("bind", queue_name, copy) is False
    assert rpc.call("bindings", queue_name) == [copy.encode()]
    # Each takes effect in order among the requests of the connection.
    replies = rpc.many([("push", queue_name, "1"), ("unbind", queue_name, copy), ("push", queue_name, "2")])
    assert [reply.result for reply in replies] == [b"ok", True, b"ok"]
    assert rpc.call("unbind", queue_name, copy) is False
    assert rpc.call("bindings", queue_name) == []
    assert pull_all(rpc, copy) == [b"1"]
    assert pull_all(rpc, queue_name) == [b"1", b"2"]
    assert is_error(rpc.error("bind", queue_name, queue_name), "bad_request")
    assert is_error(rpc.error("bind", queue_name, ""), "bad_name")
    assert rpc.error("bind", queue_name, 1) == b"function_clause"


# --- access -----------------------------------------------------------------------------------------------------------


def on_guarded_node(folder: Path, main: Callable[[Guarded], Coroutine[Any, Any, None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(DEADLINE_S), guarded_node(folder) as guarded:
            await main(guarded)

    asyncio.run(bounded())


def test_properties_name_only_queues_that_the_token_covers(tmp_path: Path) -> None:
    """Otherwise messages would go there, or to queues of others, on behalf of the cluster."""

    async def main(guarded: Guarded) -> None:
        rpc = await guarded.connect(await guarded.token("mine", "admin", "^own"))
        for wrong in (
            {"dead_letter_queue": "theirs"},
            {"expire_to_queue": "theirs"},
            {"destination_queues": ["own-2", "theirs"]},
        ):
            error, _ = await rpc.call("update_props", "own", wrong)
            assert is_error(error, "forbidden"), wrong
        fine = {"dead_letter_queue": "own-dead", "destination_queues": ["own-2"]}
        assert await rpc.call("update_props", "own", fine) == (None, b"ok")
        assert guarded.node.service.own_properties(b"own").keys() == fine.keys()
        error, _ = await rpc.call("set_default_props", [[".*", {"dead_letter_queue": "theirs"}]])
        assert is_error(error, "forbidden")

    on_guarded_node(tmp_path, main)


def test_queues_of_others_cannot_be_bound(tmp_path: Path) -> None:
    async def main(guarded: Guarded) -> None:
        root = await guarded.connect(await guarded.token("root", "admin"))
        assert (await root.call("bind", "own", "theirs"))[0] is None
        assert (await root.call("bind", "own", "own-2"))[0] is None
        rpc = await guarded.connect(await guarded.token("mine", "admin", "^own"))
        for call in (
            ("bind", "own", "theirs"),
            ("bind", "theirs", "own"),
            ("unbind", "own", "theirs"),
            ("unbind", "theirs", "own"),
            ("redrive", "theirs"),
            ("redrive", "theirs", {"to": "own"}),
            ("redrive", "own", {"to": "theirs"}),
            ("withdraw", "theirs", "x"),
            ("count_labelled", "theirs", "x"),
            ("bindings", "theirs"),
        ):
            assert is_error((await rpc.call(*call))[0], "forbidden"), call
        assert await rpc.call("bindings", "own") == (None, [b"own-2"])
        worker = await guarded.connect(await guarded.token("worker", "write", "^own"))
        for call in (("bind", "own", "own-3"), ("unbind", "own", "own-2"), ("redrive", "own")):
            assert is_error((await worker.call(*call))[0], "forbidden"), call
        assert (await worker.call("withdraw", "own", "x"))[0] is None

    on_guarded_node(tmp_path, main)


def test_a_transaction_touches_only_what_the_token_covers(tmp_path: Path) -> None:
    async def main(guarded: Guarded) -> None:
        root = await guarded.connect(await guarded.token("root", "admin"))
        assert (await root.call("push", "theirs", "x"))[0] is None
        _, message = await root.call("pull", "theirs")
        receipt = message[b"id"]
        rpc = await guarded.connect(await guarded.token("mine", "write", "^own"))
        mine = ["push", "own", "x", None]
        for operation in (
            ["push", "theirs", "x", None],
            ["done", "theirs", receipt],
            ["release", "theirs", receipt],
            ["retain", "theirs", receipt],
        ):
            assert is_error((await rpc.call("transaction", [mine, operation]))[0], "forbidden"), operation
        # The receipt of another queue is invalid in one's own.
        assert is_error((await rpc.call("transaction", [mine, ["done", "own", receipt]]))[0], "lease_lost")
        assert await rpc.call("pull", "own", 0) == (None, b"empty")
        assert await rpc.call("transaction", [mine]) == (None, [b"ok"])
        reader = await guarded.connect(await guarded.token("reader", "read"))
        assert is_error((await reader.call("transaction", []))[0], "forbidden")
        assert await root.call("done", "theirs", receipt) == (None, b"ok")

    on_guarded_node(tmp_path, main)
