"""Sessions, exclusive queues, locks and waiting pushes over HTTP. Every answer is validated against the
OpenAPI document.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from .cluster import Cluster, wait_for
from .test_http_v1 import Api


@pytest.fixture
def nodes(shared_cluster: Cluster) -> list[Api]:
    return [Api(node.http) for node in shared_cluster]


def opened(api: Api, ttl: float = 60) -> str:
    session: str = api.ok("POST", "/v1/sessions", {"ttl": ttl})["session"]
    return session


def push(api: Api, queue: str, *contents: str, **more: Any) -> Any:
    body = {"messages": [{"content": content} for content in contents], **more}
    return api("POST", f"/v1/queues/{queue}/messages", body)


def pull(api: Api, queue: str, **more: Any) -> list[str]:
    found = api.ok("POST", f"/v1/queues/{queue}/pull", more)["messages"]
    return [one["content"] for one in found]


def test_a_session_moves_between_nodes_and_returns_its_messages(nodes: list[Api], queue_name: str) -> None:
    push(nodes[0], queue_name, "1", "2", "3")
    session = opened(nodes[0])
    assert pull(nodes[0], queue_name, max=2, session=session) == ["1", "2"]
    assert nodes[1].ok("POST", f"/v1/sessions/{session}/renew") == {"alive": True}
    assert nodes[2].ok("DELETE", f"/v1/sessions/{session}") == {"ended": True}
    assert pull(nodes[1], queue_name, max=9) == ["1", "2", "3"]
    assert nodes[0].ok("POST", f"/v1/sessions/{session}/renew") == {"alive": False}
    assert nodes[0].ok("DELETE", f"/v1/sessions/{session}") == {"ended": False}
    path = f"/v1/queues/{queue_name}/pull"
    nodes[0].problem(nodes[0]("POST", path, {"session": session}), 409, "session_lost")


def test_lost_deliveries_are_repeated(nodes: list[Api], queue_name: str) -> None:
    push(nodes[0], queue_name, "1", "2")
    session = opened(nodes[0])
    assert pull(nodes[0], queue_name, session=session, after="") == ["1"]
    assert pull(nodes[1], queue_name, session=session, after="", max=2) == ["1"]
    path = f"/v1/queues/{queue_name}/pull"
    nodes[0].problem(nodes[0]("POST", path, {"session": session, "after": "no id"}), 400, "bad_request")
    nodes[0].problem(nodes[0]("POST", path, {"after": ""}), 400, "bad_request")


def test_an_exclusive_queue_shows_its_holder_and_passes_to_the_next(nodes: list[Api], queue_name: str) -> None:
    path = f"/v1/queues/{queue_name}"
    nodes[0].ok("PATCH", f"{path}/properties", {"exclusive": True})
    push(nodes[0], queue_name, "1")
    nodes[0].problem(nodes[0]("POST", f"{path}/pull"), 409, "exclusive")
    first, second = opened(nodes[0]), opened(nodes[1])
    assert pull(nodes[0], queue_name, session=first) == ["1"]
    assert pull(nodes[1], queue_name, session=second) == []
    shown = nodes[2].ok("GET", path)
    assert (shown["exclusive_holder"], shown["standing_by"]) == (first, 1)
    assert nodes[2].ok("POST", f"{path}/leave", {"session": first}) == {"left": True}
    assert nodes[2].ok("POST", f"{path}/leave", {"session": first}) == {"left": False}
    assert pull(nodes[1], queue_name, session=second, timeout=60) == ["1"]
    assert nodes[0].ok("GET", path)["exclusive_holder"] == second


def test_a_lock_passes_to_the_next_session_with_a_larger_token(nodes: list[Api], queue_name: str) -> None:
    path = f"/v1/locks/{queue_name}"
    first, second = opened(nodes[0]), opened(nodes[1])
    token = nodes[0].ok("POST", path, {"session": first})["token"]
    assert nodes[1].ok("POST", path, {"session": second}) == {"token": None}
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(nodes[1].ok, "POST", path, {"session": second, "wait": 120})
        wait_for(lambda: nodes[2].ok("GET", path)["waiting"] == 1 or None, "the other one waits")
        assert nodes[2].ok("GET", path) == {"held": True, "token": token, "waiting": 1, "stale": False}
        assert nodes[0].ok("DELETE", path, {"session": first}) == {"freed": True}
        assert waiting.result(120)["token"] > token
    assert nodes[0].ok("DELETE", path, {"session": first}) == {"freed": False}


def test_a_push_waits_for_room(nodes: list[Api], queue_name: str) -> None:
    path = f"/v1/queues/{queue_name}"
    nodes[0].ok("PATCH", f"{path}/properties", {"max_items": 1})
    push(nodes[0], queue_name, "1")
    nodes[0].problem(push(nodes[0], queue_name, "2", wait=0.1), 507, "full")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(push, nodes[1], queue_name, "3", wait=120)
        wait_for(lambda: nodes[2].ok("GET", path)["pushes_waiting"] == 1 or None, "the push waits")
        assert pull(nodes[2], queue_name) == ["1"]
        assert waiting.result(120).status == 200
    assert pull(nodes[0], queue_name) == ["3"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/sessions", {}),
        ("/v1/sessions", {"ttl": 0}),
        ("/v1/sessions", {"ttl": 3601}),
        ("/v1/sessions", {"ttl": "30"}),
        ("/v1/sessions", {"ttl": 30, "x": 1}),
        ("/v1/queues/q/leave", {}),
        ("/v1/queues/q/pull", {"session": 7}),
        ("/v1/queues/q/pull", {"session": "s" * 65}),
        ("/v1/queues/q/pull", {"session": "s", "auto_ack": True}),
        ("/v1/queues/q/messages", {"messages": [{"content": "x"}], "wait": -1}),
        ("/v1/queues/q/messages", {"messages": [{"content": "x"}], "wait": 86_401}),
        ("/v1/locks/l", {}),
        ("/v1/locks/l", {"session": "s", "wait": -1}),
        ("/v1/locks/l", {"session": "s", "wait": 86_401}),
    ],
)
def test_values_out_of_range_are_refused(nodes: list[Api], path: str, body: dict[str, Any]) -> None:
    nodes[0].problem(nodes[0]("POST", path, body), 400, "bad_request")


def test_an_unknown_session_has_ended(nodes: list[Api]) -> None:
    api = nodes[0]
    for method, path in (("POST", "/v1/locks/l"), ("DELETE", "/v1/locks/l"), ("POST", "/v1/queues/q/leave")):
        api.problem(api(method, path, {"session": "no session"}), 409, "session_lost")
    assert api.ok("DELETE", "/v1/sessions/none") == {"ended": False}
