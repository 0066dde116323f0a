"""Features of the ``/v1`` routes beyond LMQ. Every answer is validated against the OpenAPI document that the
node serves.
"""

from __future__ import annotations

import time
from typing import Any

import pytest

from .cluster import NodeProcess
from .raw_http import call
from .test_http_v1 import Api


@pytest.fixture
def api(node: NodeProcess) -> Api:
    return Api(node.http)


def push(api: Api, queue: str, *contents: str, **options: Any) -> list[dict[str, Any]]:
    messages = [{"content": content, **options} for content in contents]
    results: list[dict[str, Any]] = api.ok("POST", f"/v1/queues/{queue}/messages", {"messages": messages})["results"]
    return results


def pull(api: Api, queue: str, **options: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = api.ok("POST", f"/v1/queues/{queue}/pull", {"max": 100, **options})["messages"]
    return found


def contents(messages: list[dict[str, Any]]) -> list[str]:
    return [message["content"] for message in messages]


def set_properties(api: Api, queue: str, **properties: Any) -> None:
    api.ok("PATCH", f"/v1/queues/{queue}/properties", properties)


# --- push -------------------------------------------------------------------------------------------------------------


def test_messages_are_delivered_by_priority(api: Api, queue_name: str) -> None:
    push(api, queue_name, "later", priority=5)
    push(api, queue_name, "plain")
    push(api, queue_name, "urgent", priority=-1)
    messages = pull(api, queue_name)
    assert contents(messages) == ["urgent", "plain", "later"]
    assert [message.get("priority") for message in messages] == [-1, None, 5]


def test_a_delayed_message_is_delivered_when_it_is_due(api: Api, queue_name: str) -> None:
    begun_s = time.monotonic()
    push(api, queue_name, "delayed", delay=0.5)
    push(api, queue_name, "due", due=time.time() + 0.5)
    assert pull(api, queue_name) == []
    assert api.ok("GET", f"/v1/queues/{queue_name}")["delayed"] == 2
    found = pull(api, queue_name, timeout=60)
    while len(found) < 2:
        found += pull(api, queue_name, timeout=60)
    assert time.monotonic() - begun_s >= 0.5
    assert sorted(contents(found)) == ["delayed", "due"]


def test_a_message_is_not_delivered_after_its_expiry(api: Api, queue_name: str) -> None:
    set_properties(api, queue_name, expire_to_queue=f"{queue_name}-expired")
    push(api, queue_name, "stale", ttl=0.2, label="x")
    expired = pull(api, f"{queue_name}-expired", timeout=60)
    assert contents(expired) == ["stale"]
    assert expired[0]["origin"]["reason"] == "expired"
    assert expired[0]["origin"]["queue"] == queue_name
    assert expired[0]["label"] == "x"
    assert pull(api, queue_name) == []
    assert api.ok("GET", f"/v1/queues/{queue_name}")["expired_total"] == 1


def test_a_group_is_delivered_one_at_a_time(api: Api, queue_name: str) -> None:
    push(api, queue_name, "1", "2", group="tenant")
    push(api, queue_name, "other")
    first = pull(api, queue_name)
    assert contents(first) == ["1", "other"]
    assert first[0]["group"] == "tenant"
    held = api.ok("GET", f"/v1/queues/{queue_name}/messages?group=tenant")["messages"]
    assert [(message["content"], message["state"]) for message in held] == [("1", "leased"), ("2", "held")]
    api.ok("POST", f"/v1/queues/{queue_name}/ack", {"ids": [first[0]["id"]]})
    assert contents(pull(api, queue_name, timeout=60)) == ["2"]


def test_a_delivery_shows_its_number_and_push_time(api: Api, queue_name: str) -> None:
    before_s = time.time()
    push(api, queue_name, "x")
    (first,) = pull(api, queue_name)
    api.ok("POST", f"/v1/queues/{queue_name}/nack", {"ids": [first["id"]]})
    (again,) = pull(api, queue_name)
    assert (first["delivery"], again["delivery"]) == (1, 2)
    assert first["sequence"] == again["sequence"]
    assert abs(first["pushed_at"] - before_s) < 600


def test_a_push_returns_the_sequence(api: Api, queue_name: str) -> None:
    (plain,) = push(api, queue_name, "plain")
    (labelled,) = push(api, queue_name, "labelled", label="x", key="k")
    (again,) = push(api, queue_name, "labelled", label="x", key="k")
    (keyed,) = push(api, queue_name, "keyed", key="k2")
    (keyed_again,) = push(api, queue_name, "keyed", key="k2")
    assert again == {**labelled, "replayed": True}
    assert keyed_again == {**keyed, "replayed": True}
    delivered = [message["sequence"] for message in pull(api, queue_name)]
    assert delivered == [one["sequence"] for one in (plain, labelled, keyed)]


@pytest.mark.parametrize(
    "options",
    [
        {"delay": -1},
        {"delay": 1, "due": 1},
        {"delay": "1"},
        {"delay": 1e300},
        {"due": -1},
        {"ttl": 0},
        {"priority": 1 << 31},
        {"priority": 0.5},
        {"label": "x" * 256},
        {"group": ""},
        {"group": 1},
        {"other": 1},
    ],
    ids=str,
)
def test_wrong_options_are_refused(api: Api, queue_name: str, options: dict[str, Any]) -> None:
    body = {"messages": [{"content": "fine"}, {"content": "x", **options}]}
    api.problem(api("POST", f"/v1/queues/{queue_name}/messages", body), 400, "bad_request")
    assert pull(api, queue_name) == []


# --- bounds -----------------------------------------------------------------------------------------------------------


def test_a_full_queue_refuses(api: Api, queue_name: str) -> None:
    set_properties(api, queue_name, max_items=2)
    push(api, queue_name, "1")
    target = f"/v1/queues/{queue_name}/messages"
    batch = {"messages": [{"content": "2"}, {"content": "3"}]}
    answer = api("POST", target, batch)
    api.problem(answer, 507, "full")
    assert answer.json["retryable"] is True
    push(api, queue_name, "2")
    api.problem(api("POST", target, {"messages": [{"content": "3"}]}), 507, "full")
    assert call(api.address, "POST", f"/messages/{queue_name}", b"3").status == 507
    assert contents(pull(api, queue_name)) == ["1", "2"], "a batch is stored as a whole or not at all"
    push(api, queue_name, "3")
    assert api.ok("GET", f"/v1/queues/{queue_name}")["refused_total"] == 3


def test_a_body_may_be_too_large_for_a_queue(api: Api, queue_name: str) -> None:
    set_properties(api, queue_name, max_item_size=3)
    body = {"messages": [{"content": "four"}]}
    api.problem(api("POST", f"/v1/queues/{queue_name}/messages", body), 413, "too_large")


def test_a_copy_that_a_full_queue_refuses_is_reported(api: Api, queue_name: str) -> None:
    set_properties(api, f"{queue_name}-full", max_items=0)
    set_properties(api, f"{queue_name}-open", retry=1)
    answer = call(api.address, "POST", f"/messages?qre=%5E{queue_name}-", b"x", {"Content-Type": "text/plain"})
    assert answer.json == {f"{queue_name}-full": {"error": "full"}, f"{queue_name}-open": {"accum": "no"}}


def test_a_queue_stores_a_key_once_in_its_window(api: Api, queue_name: str) -> None:
    set_properties(api, queue_name, key_window=300, key_scope="group")
    (first,) = push(api, queue_name, "one", key="k", group="g")
    again = {**first, "replayed": True}
    assert push(api, queue_name, "two", "three", key="k", group="g") == [again, again]
    (other,) = push(api, queue_name, "four", key="k", group="h")
    assert "replayed" not in other
    assert contents(pull(api, queue_name)) == ["one", "four"]
    assert api.ok("GET", f"/v1/queues/{queue_name}")["deduplicated_total"] == 2
    page = call(api.address, "GET", f"/metrics/queues?name=%5E{queue_name}$").body.decode()
    assert f'lmq_queue_messages_deduplicated_total{{queue="{queue_name}"}} 2' in page
    api.ok("POST", f"/v1/queues/{queue_name}/purge")
    assert "replayed" not in push(api, queue_name, "five", key="k", group="g")[0]


def test_a_key_is_new_after_its_window(api: Api, queue_name: str) -> None:
    set_properties(api, queue_name, key_window=0.5)
    header = {"Idempotency-Key": "k", "Content-Type": "text/plain"}
    answers = [call(api.address, "POST", f"/messages/{queue_name}", b"%d" % number, header) for number in range(2)]
    assert ["idempotency-replayed" in answer.headers for answer in answers] == [False, True]
    begun_s = time.monotonic()
    while "idempotency-replayed" in call(api.address, "POST", f"/messages/{queue_name}", b"new", header).headers:
        assert time.monotonic() < begun_s + 60
    assert contents(pull(api, queue_name)) == ["0", "new"]


def test_a_transaction_stores_a_key_once(api: Api, queue_name: str) -> None:
    set_properties(api, queue_name, key_window=300)
    step = {"op": "push", "queue": queue_name, "content": "x", "key": "k"}
    results = api.ok("POST", "/v1/transactions", {"operations": [step, step]})["results"]
    assert [result.get("replayed") for result in results] == [None, True]


def test_properties_are_shown_and_removed(api: Api, queue_name: str) -> None:
    set_properties(
        api, queue_name, max_items=5, dead_letter_queue="dead", destination_queues=["a", "b"], retry_delay=0.5
    )
    shown = api.ok("GET", f"/v1/queues/{queue_name}")["own_properties"]
    assert shown == {
        "max_items": 5, "dead_letter_queue": "dead", "destination_queues": ["a", "b"], "retry_delay": 0.5,
    }  # fmt: skip
    set_properties(api, queue_name, max_items=None, destination_queues=None)
    shown = api.ok("GET", f"/v1/queues/{queue_name}/properties")
    assert shown == {"accum": 0, "dead_letter_queue": "dead", "retry": 2, "retry_delay": 0.5, "timeout": 30}


@pytest.mark.parametrize(
    "properties",
    [
        {"max_items": -1},
        {"max_items": True},
        {"max_items": 1.5},
        {"max_age": 0},
        {"delay": 1e300},
        {"retry_backoff": 0.5},
        {"group_mode": "unfair"},
        {"group_mode": 1},
        {"max_in_flight": 0},
        {"group_max_in_flight": True},
        {"rate": 0},
        {"rate": 1e300},
        {"rate": "5"},
        {"rate_burst": 0},
        {"group_rate": -1},
        {"group_rate_burst": 1.5},
        {"discard_old_when_full": 1},
        {"dead_letter_queue": ""},
        {"dead_letter_queue": "a\nb"},
        {"destination_queues": "a"},
        {"destination_queues": ["a"] * 101},
        {"destination_queues": [1]},
        {"key_window": 0},
        {"key_scope": "all"},
        {"key_scope": None, "key_window": "5m"},
    ],
    ids=str,
)
def test_wrong_properties_are_refused(api: Api, queue_name: str, properties: dict[str, Any]) -> None:
    api.problem(api("PATCH", f"/v1/queues/{queue_name}/properties", properties), 400, "bad_property")


def test_limits_of_deliveries_are_set_and_shown(api: Api, queue_name: str) -> None:
    given = {
        "group_mode": "fair",
        "max_in_flight": 2,
        "group_max_in_flight": 1,
        "group_rate": 0.5,
        "group_rate_burst": 3,
    }
    api.ok("PATCH", f"/v1/queues/{queue_name}/properties", given)
    for group in ("a", "a", "b", "c"):
        push(api, queue_name, "x", group=group)
    assert [one["group"] for one in pull(api, queue_name, max=10)] == ["a", "b"]
    shown = api.ok("GET", f"/v1/queues/{queue_name}")
    assert shown["held_back"] == {"max_in_flight": 2, "group_max_in_flight": 1}
    assert {name: shown["own_properties"][name] for name in given} == given
    api.ok("PATCH", f"/v1/queues/{queue_name}/properties", {"max_in_flight": None, "rate": 1, "rate_burst": 1})
    assert [one["group"] for one in pull(api, queue_name, max=10)] == ["c"]
    assert api.ok("GET", f"/v1/queues/{queue_name}")["held_back"] == {"rate": 1, "group_max_in_flight": 1}


# --- pull and settle --------------------------------------------------------------------------------------------------


def test_a_pull_may_set_its_lease(api: Api, queue_name: str) -> None:
    push(api, queue_name, "x")
    assert contents(pull(api, queue_name, lease=0.2)) == ["x"]
    (again,) = pull(api, queue_name, timeout=60, lease=600)
    assert again["delivery"] == 2
    (peeked,) = api.ok("GET", f"/v1/queues/{queue_name}/messages")["messages"]
    assert 500 < peeked["due_in_s"] <= 600
    api.ok("POST", f"/v1/queues/{queue_name}/extend", {"ids": [again["id"]], "lease": 6000})
    (peeked,) = api.ok("GET", f"/v1/queues/{queue_name}/messages")["messages"]
    assert 5000 < peeked["due_in_s"] <= 6000


def test_auto_ack_leaves_no_lease(api: Api, queue_name: str) -> None:
    push(api, queue_name, "1", "2")
    assert contents(pull(api, queue_name, max=1, auto_ack=True)) == ["1"]
    assert api.ok("GET", f"/v1/queues/{queue_name}")["size"] == 1


def test_a_message_returns_to_the_head_or_after_a_delay(api: Api, queue_name: str) -> None:
    push(api, queue_name, "1", "2", "3")
    first, second = pull(api, queue_name, max=2)
    nack = f"/v1/queues/{queue_name}/nack"
    api.ok("POST", nack, {"ids": [first["id"], second["id"]], "place": "head"})
    assert contents(pull(api, queue_name, max=1)) == ["1"]
    (third, fourth) = pull(api, queue_name)
    assert contents([third, fourth]) == ["2", "3"]
    api.ok("POST", nack, {"ids": [third["id"]], "delay": 600})
    assert pull(api, queue_name) == []
    api.problem(api("POST", nack, {"ids": [], "place": "middle"}), 400, "bad_request")
    api.problem(api("POST", nack, {"ids": [fourth["id"]], "delay": -1}), 400, "bad_request")
    api.problem(api("POST", f"/v1/queues/{queue_name}/pull", {"lease": 0}), 400, "bad_request")


# --- labels, dead letters, bindings -----------------------------------------------------------------------------------


def test_labels_are_counted_found_and_withdrawn(api: Api, queue_name: str) -> None:
    path = f"/v1/queues/{queue_name}"
    push(api, queue_name, "1", "2", label="x")
    push(api, queue_name, "3", label="y")
    assert api.ok("GET", f"{path}/labels?label=x")["count"] == 2
    assert contents(api.ok("GET", f"{path}/messages?label=x")["messages"]) == ["1", "2"]
    assert api.ok("POST", f"{path}/withdraw", {"label": "x", "max": 1}) == {"withdrawn": 1}
    assert api.ok("POST", f"{path}/withdraw", {"label": "x"}) == {"withdrawn": 1}
    assert contents(pull(api, queue_name)) == ["3"]
    api.problem(api("POST", f"{path}/withdraw", {}), 400, "bad_request")
    api.problem(api("GET", f"{path}/labels"), 400, "bad_request")
    api.problem(api("POST", f"{path}-none/withdraw", {"label": "x"}), 404, "queue_not_found")


def test_an_attribute_limits_what_is_withdrawn(api: Api, queue_name: str) -> None:
    path = f"/v1/queues/{queue_name}"
    for number in range(3):
        push(
            api, queue_name, f"{number}", label="x", attributes={"kind": "test" if number else "real", "number": number}
        )
    push(api, queue_name, "other", label="y", attributes={"kind": "test"})
    push(api, queue_name, "none", label="x")
    pull(api, queue_name, max=1)
    withdraw = f"{path}/withdraw"
    assert api.ok("POST", withdraw, {"label": "x", "attribute": "kind=real"}) == {"withdrawn": 0}, "it is leased"
    assert api.ok("POST", withdraw, {"label": "x", "attribute": "number=2"}) == {"withdrawn": 1}
    push(api, queue_name, "4", label="x", attributes={"kind": "test"})
    assert api.ok("POST", withdraw, {"label": "x", "attribute": "kind=test", "max": 1}) == {"withdrawn": 1}
    assert contents(pull(api, queue_name, max=10)) == ["other", "none", "4"]
    for wrong in ("", "kind", "=test", 1):
        api.problem(api("POST", withdraw, {"label": "x", "attribute": wrong}), 400, "bad_request")
    api.problem(api("POST", withdraw, {"attribute": "kind=test"}), 400, "bad_request")
    api.problem(api("POST", f"{path}-none/withdraw", {"label": "x", "attribute": "kind=test"}), 404, "queue_not_found")


def test_dead_letters_are_redriven(api: Api, queue_name: str) -> None:
    dead = f"{queue_name}-dead"
    set_properties(api, queue_name, retry=0, dead_letter_queue=dead)
    push(api, queue_name, "x", label="l")
    (message,) = pull(api, queue_name)
    api.ok("POST", f"/v1/queues/{queue_name}/nack", {"ids": [message["id"]]})
    (letter,) = api.ok("GET", f"/v1/queues/{dead}/messages")["messages"]
    assert letter["origin"] == {
        "queue": queue_name, "reason": "exhausted", "deliveries": 1, "sequence": message["sequence"],
    }  # fmt: skip
    assert api.ok("POST", f"/v1/queues/{dead}/redrive", {"label": "other"}) == {"redriven": 0}
    assert api.ok("POST", f"/v1/queues/{dead}/redrive", {}) == {"redriven": 1}
    (again,) = pull(api, queue_name)
    assert "origin" not in again
    assert (again["content"], again["label"], again["delivery"]) == ("x", "l", 1)


def test_single_dead_letters_are_redriven_and_purged(api: Api, queue_name: str) -> None:
    dead, other = f"{queue_name}-dead", f"{queue_name}-other"
    set_properties(api, queue_name, retry=0, dead_letter_queue=dead)
    push(api, queue_name, *"abcd")
    ids = [message["id"] for message in pull(api, queue_name, max=4)]
    api.ok("POST", f"/v1/queues/{queue_name}/nack", {"ids": ids})
    push(api, dead, "by hand")
    a, b, c, d, by_hand = [one["sequence"] for one in api.ok("GET", f"/v1/queues/{dead}/messages")["messages"]]
    assert api.ok("POST", f"/v1/queues/{dead}/redrive", {"sequences": [b, by_hand]}) == {"redriven": 1}
    assert api.ok("POST", f"/v1/queues/{dead}/redrive", {"sequences": [c], "to": other}) == {"redriven": 1}
    assert api.ok("POST", f"/v1/queues/{dead}/purge", {"sequences": [d, d, by_hand]}) == {"purged": 1}
    assert api.ok("POST", f"/v1/queues/{dead}/purge", {"sequences": []}) == {"purged": 0}
    assert [one["content"] for one in pull(api, queue_name, max=5)] == ["b"]
    assert [one["content"] for one in pull(api, other, max=5)] == ["c"]
    left = api.ok("GET", f"/v1/queues/{dead}/messages")["messages"]
    assert [one["sequence"] for one in left] == [a, by_hand]
    for verb in ("redrive", "purge"):
        for wrong in (a, [-1], ["1"], [True], [1.5], None):
            api.problem(api("POST", f"/v1/queues/{dead}/{verb}", {"sequences": wrong}), 400, "bad_request")
        both = {"sequences": [a], "max": 1}
        api.problem(api("POST", f"/v1/queues/{dead}/{verb}", both), 400, "bad_request")
        api.problem(api("POST", f"/v1/queues/{dead}/{verb}", {"sequences": [a] * 101}), 413, "too_large")
        api.problem(api("POST", f"/v1/queues/{queue_name}-no/{verb}", {"sequences": [a]}), 404, "queue_not_found")


def test_bound_queues_get_copies(api: Api, queue_name: str) -> None:
    path, copy = f"/v1/queues/{queue_name}", f"{queue_name}-copy"
    assert api.ok("POST", f"{path}/bind", {"target": copy}) == {"new": True}
    assert api.ok("POST", f"{path}/bind", {"target": copy}) == {"new": False}
    assert api.ok("GET", f"{path}/bindings")["targets"] == [copy]
    push(api, queue_name, "x")
    assert contents(pull(api, copy)) == ["x"]
    assert api.ok("POST", f"{path}/unbind", {"target": copy}) == {"ended": True}
    push(api, queue_name, "y")
    assert pull(api, copy) == []
    api.problem(api("POST", f"{path}/bind", {"target": queue_name}), 400, "bad_request")


# --- transactions -----------------------------------------------------------------------------------------------------


def test_consume_and_produce_in_one_step(api: Api, queue_name: str) -> None:
    source, target = f"{queue_name}-in", f"{queue_name}-out"
    push(api, source, "x")
    (message,) = pull(api, source)
    operations = [
        {"op": "ack", "queue": source, "id": message["id"]},
        {"op": "push", "queue": target, "content": "y", "label": "made"},
    ]
    results = api.ok("POST", "/v1/transactions", {"operations": operations})["results"]
    assert results[0] == {"done": True}
    assert results[1]["accum"] == "no"
    api.problem(api("POST", "/v1/transactions", {"operations": operations}), 409, "lease_lost")
    assert contents(pull(api, target)) == ["y"]


def test_a_transaction_is_applied_entirely_or_not_at_all(api: Api, queue_name: str) -> None:
    source, full = f"{queue_name}-in", f"{queue_name}-full"
    set_properties(api, full, max_items=0)
    push(api, source, "x")
    (message,) = pull(api, source)
    operations = [
        {"op": "extend", "queue": source, "id": message["id"], "lease": 60},
        {"op": "push", "queue": f"{queue_name}-out", "content": "y"},
        {"op": "push", "queue": full, "content": "z"},
    ]
    answer = api("POST", "/v1/transactions", {"operations": operations})
    api.problem(answer, 507, "full")
    assert "operation 2" in answer.json["detail"]
    assert pull(api, f"{queue_name}-out") == []
    done = api.ok("POST", "/v1/transactions", {"operations": [{"op": "nack", "queue": source, "id": message["id"]}]})
    assert done == {"results": [{"done": True}]}


@pytest.mark.parametrize(
    "operation",
    [
        {},
        1,
        {"op": "pull", "queue": "q"},
        {"op": "ack", "queue": "q"},
        {"op": "ack", "id": "x"},
        {"op": "push", "queue": "q"},
        {"op": "push", "queue": "", "content": "x"},
        {"op": "push", "queue": "q", "content": "x", "id": "x"},
        {"op": "nack", "queue": "q", "id": "x", "place": "middle"},
    ],
    ids=str,
)
def test_a_wrong_operation_is_refused(api: Api, operation: Any) -> None:
    answer = api("POST", "/v1/transactions", {"operations": [operation]})
    assert answer.status == 400, answer
    assert "operations[0]" in answer.json["detail"] or answer.json["code"] == "bad_name"


def test_a_transaction_is_bounded(api: Api) -> None:
    operations = [{"op": "ack", "queue": "q", "id": "x"}] * 1001
    api.problem(api("POST", "/v1/transactions", {"operations": operations}), 413, "too_large")
