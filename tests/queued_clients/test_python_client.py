"""queued's published Python client on a cluster whose nodes are killed."""

from __future__ import annotations

import hashlib
import time

import pytest
import requests
from queued_client_py import Message, PushItem, QueuedApiError, QueuedUnauthorizedError

from ..integration.cluster import Cluster, wait_for
from ..integration.queued_http import QueuedHttp
from .npm import installed_client
from .work import Work, client, ended

MESSAGES = 120
HIDDEN_S = 20
DEADLINE_S = 240.0


def test_every_call_of_the_client(shared_cluster: Cluster, queue_name: str) -> None:
    first, second, third = (client(node.queued) for node in shared_cluster)
    first.create_queue(queue_name)
    with pytest.raises(QueuedApiError) as refused:
        second.create_queue(queue_name)
    assert (refused.value.status, refused.value.error) == (409, "QueueAlreadyExists")
    assert queue_name in third.list_queues()
    queue = second.queue(queue_name)
    ids = queue.push_messages([PushItem({"n": n}, 0) for n in range(3)])
    polled = third.queue(queue_name).poll_messages(2, 60)
    assert [(one.message.id, one.contents) for one in polled] == [(ids[0], {"n": 0}), (ids[1], {"n": 1})]
    tag = first.queue(queue_name).update_message(polled[0].message, 0)
    queue.delete_messages([polled[0].message, polled[1].message])
    # The returned message is after those that had waited.
    waited, again = queue.poll_messages(2, 60)
    assert (waited.message.id, again.message.id) == (ids[2], ids[0])
    assert again.message.poll_tag != tag
    assert [one.message.id for one in queue.poll_messages(1, 60, True)] == [ids[2]]
    metrics = queue.metrics()
    assert (metrics.message_counter, metrics.successful_push_counter, metrics.missing_delete_counter) == (2, 3, 1)
    with pytest.raises(QueuedApiError) as gone:
        queue.update_message(Message(ids[1], polled[1].message.poll_tag), 5)
    assert (gone.value.status, gone.value.error) == (404, "MessageNotFound")
    first.delete_queue(queue_name)
    assert queue_name not in second.list_queues()


KEY = "a key of sixteen bytes"


def test_keys_of_the_client(secret_cluster: Cluster) -> None:
    node = secret_cluster.nodes[0]
    secret = QueuedHttp(node.http)("POST", "/v1/tokens", {"name": "boss", "role": "admin"}).value["token"]
    admin = client(node.queued, secret)
    wait_for(lambda: requests.get(f"http://{node.queued}/queues", timeout=30).status_code == 401, "a token is needed")
    admin.create_queue("mail")
    admin.set_api_key(KEY, "mail")
    # The key itself is not stored.
    listed = [(one.key, one.prefix) for one in admin.list_api_keys()]
    assert listed == [("sha256:" + hashlib.sha256(KEY.encode()).hexdigest(), "mail")]
    holder = client(node.queued, KEY)
    assert holder.queue("mail").push_messages([PushItem(1, 0)])
    with pytest.raises(QueuedUnauthorizedError):
        holder.list_queues()
    admin.delete_api_key(listed[0][0])
    with pytest.raises(QueuedUnauthorizedError):
        holder.queue("mail").poll_messages(1, 1)


def test_nothing_is_lost_or_delivered_twice_while_nodes_are_killed(cluster: Cluster) -> None:
    """This uses both published clients; ``python -m tests.queued_clients.client_loop`` does it for longer."""
    client(cluster.nodes[0].queued).create_queue("work")
    work = Work(cluster, "work", HIDDEN_S)
    deadline_s = time.monotonic() + DEADLINE_S
    produce = work.producer(lambda number: (f"{number}-{n}" for n in range(MESSAGES)))
    producers = [work.start(produce, 0), work.javascript(installed_client(), MESSAGES)]
    for number in range(2):
        work.start(work.consume, number)
    work.start(work.vanish, 0)
    try:
        for round_ in range(3):
            goal = (round_ + 1) * MESSAGES // 2
            assert ended(lambda goal=goal: len(work.acknowledged) < goal, work, deadline_s)  # type: ignore[misc]
            node = cluster.nodes[round_]
            node.kill()
            assert ended(lambda goal=goal: len(work.acknowledged) < goal + 10, work, deadline_s)  # type: ignore[misc]
            node.start()
        assert ended(lambda: any(one.is_alive() for one in producers), work, deadline_s)
        work.produced.set()
        assert ended(work.missing, work, deadline_s)
    finally:
        work.stop()
    assert not work.failures
    assert len(work.acknowledged) == 2 * MESSAGES
    assert not work.missing()
    assert not work.doubled()
    assert {name.partition("-")[0] for name in work.acknowledged} == {"0", "js0"}
