"""The creation time of a message as queued's clients see it."""

from __future__ import annotations

from .cluster import Cluster, wait_for
from .queued_http import QueuedHttp


def test_all_deliveries_of_a_message_show_the_same_time() -> None:
    with Cluster(3) as cluster:
        wait_for(lambda: any('"what": "set_time"' in node.log() for node in cluster), "the leader has set the time")
        apis = [QueuedHttp(node.queued) for node in cluster]
        apis[0]("PUT", "/queue/q")
        apis[0].push("q", "x")
        created = {apis[number % 3].poll("q", hide=0)[0]["created"] for number in range(30)}
        assert len(created) == 1
