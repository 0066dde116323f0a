"""The server-wide metrics of the port for queued's clients."""

from __future__ import annotations

from .cluster import Cluster, NodeProcess
from .queued_http import QueuedHttp

COUNTED = ("successful_push", "successful_poll", "successful_delete", "visible", "invisible")


def figures(api: QueuedHttp) -> dict[str, int]:
    shown = api.ok("GET", "/metrics", Accept="application/json")["values"]
    return {name: shown[name]["value"] for name in COUNTED}


def test_metrics_of_all_queues_follow_every_request_at_once(cluster: Cluster, queue_name: str) -> None:
    apis = [QueuedHttp(node.queued) for node in cluster]
    apis[0]("PUT", f"/queue/{queue_name}")
    before = [figures(api) for api in apis]

    def assert_grown(**grown: int) -> None:
        for api, old in zip(apis, before, strict=True):
            assert figures(api) == {name: value + grown.get(name, 0) for name, value in old.items()}

    for pushed in range(1, 6):
        apis[pushed % 3].push(queue_name, "x")
        assert_grown(successful_push=pushed, visible=pushed)
    polled = apis[1].poll(queue_name, count=2, hide=600)
    assert_grown(successful_push=5, successful_poll=2, visible=3, invisible=2)
    apis[2].delete(queue_name, *polled)
    assert_grown(successful_push=5, successful_poll=2, successful_delete=2, visible=3)


def test_metrics_of_all_queues_in_json_and_text(node: NodeProcess, queue_name: str) -> None:
    api = QueuedHttp(node.queued)
    api("PUT", f"/queue/{queue_name}")
    api.push(queue_name, "x")
    shown = api.ok("GET", "/metrics", Accept="application/json")
    assert shown["values"]["successful_push"]["value"] >= 1
    api.push(queue_name, "y" * 5_000)
    more = api.ok("GET", "/metrics", Accept="application/json")["values"]
    assert more["io_write_bytes"]["value"] >= shown["values"]["io_write_bytes"]["value"] + 5_000
    assert more["io_write"]["value"] > shown["values"]["io_write"]["value"]
    assert shown["values"]["vacant"]["type"] == "gauge"
    plain = api("GET", "/metrics", Accept="text/plain").body.decode()
    assert "# TYPE queued_visible gauge\nqueued_visible " in plain
