"""Bounds that are exact on three nodes, and transactions that are applied once, whichever node is killed."""

from __future__ import annotations

import json
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from .cluster import Cluster, NodeProcess, wait_for
from .raw_http import Answer, call

PRODUCERS = 64
MESSAGES = 400


def _set(node: NodeProcess, queue: str, **properties: Any) -> None:
    target, body = f"/v1/queues/{queue}/properties", json.dumps(properties).encode()
    assert call(node.http, "PATCH", target, body, {"Content-Type": "application/json"}).status == 204


def _post(node: NodeProcess, target: str, value: dict[str, Any]) -> Answer | None:
    """Return the answer, or None if there is none: the node is dead, or has no leader."""
    try:
        answer = call(node.http, "POST", target, json.dumps(value).encode(), {"Content-Type": "application/json"})
    except (OSError, EOFError):
        return None
    return None if answer.status in {503, 504} else answer


def test_a_bound_is_exact_with_many_producers_on_all_nodes(shared_cluster: Cluster, queue_name: str) -> None:
    node = shared_cluster[0]
    _set(node, queue_name, max_items=100)
    statuses: list[int] = []

    def produce(number: int) -> None:
        mine = shared_cluster[number % 3]
        for index in range(5):
            answer = None
            while answer is None:
                answer = _post(
                    mine, f"/v1/queues/{queue_name}/messages", {"messages": [{"content": f"{number} {index}"}]}
                )
            statuses.append(answer.status)

    with ThreadPoolExecutor(PRODUCERS) as threads:
        list(threads.map(produce, range(PRODUCERS)))
    assert Counter(statuses) == {200: 100, 507: PRODUCERS * 5 - 100}
    shown = node.get_json(f"/v1/queues/{queue_name}")
    assert (shown["size"], shown["pushed_total"], shown["refused_total"]) == (100, 100, PRODUCERS * 5 - 100)


def test_messages_are_moved_exactly_once_whichever_node_is_killed(cluster: Cluster, queue_name: str) -> None:
    """Consumers acknowledge each message and push its result in one transaction, while nodes are killed one by one."""
    source, target = f"{queue_name}-in", f"{queue_name}-out"
    _set(cluster[0], source, timeout=2, retry=1000)
    batch = {"messages": [{"content": str(number)} for number in range(MESSAGES)]}
    answer = _post(cluster[0], f"/v1/queues/{source}/messages", batch)
    assert answer is not None
    assert answer.status == 200
    killed = threading.Event()

    def consume(number: int) -> None:
        turn = number
        while not (killed.is_set() and _is_empty(cluster, source)):
            turn += 1
            node = cluster[turn % 3]
            pulled = _post(node, f"/v1/queues/{source}/pull", {"max": 1, "timeout": 1})
            for message in [] if pulled is None else pulled.json["messages"]:
                operations = [
                    {"op": "ack", "queue": source, "id": message["id"]},
                    {"op": "push", "queue": target, "content": f"made of {message['content']}"},
                ]
                # Without an answer the outcome is unknown. If it was not applied, the message is redelivered.
                _post(node, "/v1/transactions", {"operations": operations})

    consumers = [threading.Thread(target=consume, args=(number,)) for number in range(6)]
    for consumer in consumers:
        consumer.start()
    try:
        for victim in (cluster.leader(), *cluster.followers()[:1], cluster.leader()):
            victim.restart()
            wait_for(lambda: all(node.get_json("/v1/cluster")["has_quorum"] for node in cluster), "all nodes are back")
    finally:
        killed.set()
        for consumer in consumers:
            consumer.join()
    found = _drained(cluster, target)
    assert Counter(found) == Counter(f"made of {number}" for number in range(MESSAGES))


def _is_empty(cluster: Cluster, queue: str) -> bool:
    answer = call(cluster[0].http, "GET", f"/v1/queues/{queue}")
    return answer.status == 200 and not answer.json["stale"] and answer.json["size"] == 0


def _drained(cluster: Cluster, queue: str) -> list[str]:
    contents: list[str] = []
    while True:
        pulled = _post(cluster[0], f"/v1/queues/{queue}/pull", {"max": 10_000})
        if pulled is None:
            continue
        if not pulled.json["messages"]:
            return contents
        contents += [message["content"] for message in pulled.json["messages"]]
