"""The real queued beside ours: the same answers, and its messages imported. LMQ_QUEUED names its program."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ..benchmarks.queued import real_queued
from ..integration.cluster import Cluster
from ..integration.programs import run
from ..integration.queued_http import QueuedHttp
from . import import_loop

PROGRAM = os.environ.get("LMQ_QUEUED", "")
pytestmark = pytest.mark.skipif(not PROGRAM, reason="LMQ_QUEUED does not name the program of the real queued")


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QueuedHttp]:
    with real_queued(Path(PROGRAM), tmp_path_factory.mktemp("real") / "data") as system:
        yield QueuedHttp(system.addresses[0], "msgpack")


def answers(api: QueuedHttp, queue: str) -> Iterator[Any]:
    """Return status and value of one request of each kind, without values that necessarily differ."""
    path = f"/queue/{queue}"
    push = {"messages": [{"contents": one, "visibility_timeout_secs": 0} for one in "xy"]}
    poll = {"count": 1, "visibility_timeout_secs": 0}
    requests: list[tuple[str, str, Any]] = [
        ("PUT", path, None),
        ("PUT", path, None),
        ("POST", f"{path}/messages/update", {"id": 1 << 40, "poll_tag": 0, "visibility_timeout_secs": 5}),
        ("POST", f"{path}/messages/delete", {"messages": [{"id": 1 << 40, "poll_tag": 9}]}),
        ("POST", f"{path}/messages/push", {"messages": []}),
        ("POST", f"{path}/messages/poll", poll),
        ("POST", f"{path}-none/messages/poll", poll),
        ("POST", f"{path}-none/messages/push", push),
        ("GET", f"{path}/suspend", None),
        ("POST", f"{path}/suspend", {"poll": True}),
        ("POST", f"{path}/messages/poll", poll),
        ("POST", f"{path}/suspend", {"poll": False}),
        ("GET", f"{path}/throttle", None),
    ]
    for method, where, body in requests:
        answer = api(method, where, body)
        yield method, where, answer.status, answer.value
    pushed = api("POST", f"{path}/messages/push", push)
    yield pushed.status, sorted(pushed.value), len(pushed.value["ids"])
    polled = api("POST", f"{path}/messages/poll", poll)
    yield (
        polled.status,
        [sorted(one) for one in polled.value["messages"]],
        polled.value["messages"][0]["contents"] in (b"x", b"y"),
    )
    for accept in ("application/json", "application/msgpack"):
        figures = api.ok("GET", f"{path}/metrics", Accept=accept)
        yield sorted(figures), {name: figures[name] for name in figures if name != "empty_poll_counter"}
    text = api("GET", f"{path}/metrics", Accept="text/plain").body.decode()
    yield sorted(line.partition(" ")[0] for line in text.splitlines())
    for method, where in (("DELETE", path), ("DELETE", path), ("GET", f"{path}/metrics")):
        answer = api(method, where)
        yield method, where, answer.status, answer.value
    for method, where in (("GET", "/api-keys"), ("GET", "/nothing"), ("POST", "/queues")):
        yield method, where, api(method, where).status


def test_the_answers_are_the_same(real: QueuedHttp, shared_cluster: Cluster, queue_name: str) -> None:
    ours = QueuedHttp(shared_cluster.nodes[1].queued, "msgpack")
    for expected, got in zip(answers(real, queue_name), answers(ours, queue_name), strict=True):
        assert got == expected


def test_its_messages_are_imported(real: QueuedHttp, shared_cluster: Cluster, queue_name: str) -> None:
    bodies = [b"%04d\xff" % number for number in range(1500)]
    assert real("PUT", f"/queue/{queue_name}").status == 200
    real.push(queue_name, *bodies)
    real.push(queue_name, b"later", delay=3)
    node = shared_cluster.nodes[0]
    command = ("import", "queued", f"http://{real.address}", "--queue", queue_name, "--wait")
    done = run("lmq-admin", "--node", node.http, *command)
    assert (done.code, done.out.splitlines()[-1].split("\t")) == (0, [queue_name, "1501", "0"])
    ours = QueuedHttp(node.queued, "msgpack")
    polled = [one["contents"] for one in ours.poll(queue_name, 2000)]
    assert sorted(polled) == [*bodies, b"later"]
    assert real.poll(queue_name, ignore_existing_visibility_timeouts=True) == []


def test_an_importer_that_is_killed_loses_and_duplicates_nothing() -> None:
    bodies = [b"%05d" % number for number in range(3_000)]
    observed = import_loop.run(Path(PROGRAM), bodies, kills=4, seed=2, outage_s=0)
    assert observed.is_right(bodies)
