"""Alerts on queues: each fires for a queue of a real node with its fault, and ends after the commands of the page of alerts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import pytest
from lmqcluster_chaos.injection.control import Control
from lmqcluster_chaos.injection.tools import interposer

from lmqcluster import Client, LmqError, SyncMessage

from .alert_timeline import Timeline
from .cluster import NodeProcess, wait_for
from .runbook import Operator
from .test_metrics import value

TIMEOUT_S: Final = 120.0
HOURS_2_S: Final = 7200.0
MINUTES_OMITTED: Final = 90
RETURNS: Final = 200


def _refuse(client: Client, queue: str) -> None:
    client.update_props(queue, {"max_items": 1})
    client.push(queue, b"first")
    with pytest.raises(LmqError, match="full"):
        client.push(queue, b"second")


def _discard(client: Client, queue: str) -> None:
    client.update_props(queue, {"max_items": 1, "discard_old_when_full": True})
    client.push(queue, b"first")
    client.push(queue, b"second")


def _expire(client: Client, queue: str) -> None:
    client.update_props(queue, {"max_age": 0.001})
    client.push(queue, b"content")


def _fail(client: Client, queue: str) -> None:
    client.push(queue, b"content")
    message = client.pull(queue)
    assert message is not None
    message.nack()


def _drop(client: Client, queue: str) -> None:
    client.update_props(queue, {"retry": 0})
    _fail(client, queue)


def _dead_letter(client: Client, queue: str) -> None:
    client.update_props(queue, {"retry": 0, "dead_letter_queue": f"{queue}.failed"})
    _fail(client, queue)


def _hold(client: Client, queue: str) -> SyncMessage:
    client.update_props(queue, {"timeout": 600})
    for content in (b"first", b"second"):
        client.push(queue, content, group="g")
    message = client.pull(queue)
    assert message is not None
    return message


def _leave(client: Client, queue: str) -> None:
    client.push(queue, b"content")


FAULTS: Final[Mapping[str, Callable[[Client, str], None]]] = {
    "LmqNoConsumer": _leave,
    "LmqMessagesDropped": _drop,
    "LmqDeadLetters": _dead_letter,
    "LmqPushesRefused": _refuse,
    "LmqMessagesDiscarded": _discard,
    "LmqMessagesExpired": _expire,
}
OLD: Final = "LmqOldMessages"
HELD: Final = "LmqGroupsHeld"
RETURNED: Final = "LmqDeliveriesReturned"
OMITTED: Final = "LmqQueueMetricsOmitted"
OF_QUEUES: Final = {*FAULTS, OLD, HELD, RETURNED, OMITTED}


def _return_all(client: Client, node: NodeProcess, queue: str) -> None:
    """Return many deliveries, after the node has looked at its queues once, and wait until it has looked again."""
    attention = "lmq_queues_needing_attention"
    wait_for(lambda: node.get_json("/v1/cluster/check")["attention"]["age_s"] is not None, "the first look")
    client.push_many(queue, [b"content"] * RETURNS)
    messages = client.pull_many(queue, RETURNS)
    client.release_many(queue, [message.id for message in messages])
    wait_for(lambda: value(node.http, attention, reason="returns"), "the next look")


def _consume(client: Client, queues: Sequence[str]) -> None:
    """Take and acknowledge every ready message of these queues."""
    for queue in queues:
        while message := client.pull(queue, timeout=0):
            message.ack()


def test_alerts_on_queues_fire_and_end_after_their_runbooks(tmp_path: Path) -> None:
    control = Control(tmp_path / "control")
    preload = {"LD_PRELOAD": str(interposer()), "LMQ_DRILL_CONTROL": str(control.path)}
    with NodeProcess(tmp_path, environment=preload) as node, Client(node.rpc, timeout_s=TIMEOUT_S) as client:
        timeline, operator = Timeline([node], tmp_path), Operator([node], tmp_path)
        queues = {alert: operator.name(alert) for alert in OF_QUEUES}
        for queue in queues.values():
            client.push(queue, b"content")
        _consume(client, list(queues.values()))
        timeline.scrape()
        assert not timeline.firing() & OF_QUEUES

        _return_all(client, node, queues[RETURNED])
        timeline.scrape()
        assert timeline.firing() & OF_QUEUES == {RETURNED}
        timeline.begin()

        client.push(queues[OLD], b"content")
        control.pass_time(HOURS_2_S)
        for alert, fault in FAULTS.items():
            fault(client, queues[alert])
        held = _hold(client, queues[HELD])
        wait_for(lambda: value(node.http, "lmq_messages_expired_total"), "a message to expire")
        timeline.scrape()
        assert timeline.firing() & OF_QUEUES - {RETURNED} == {*FAULTS, OLD, HELD}

        timeline.queue_limit = 1
        timeline.scrape(MINUTES_OMITTED)
        assert OMITTED in timeline.firing()
        timeline.queue_limit = 1000

        for alert in queues:
            operator.act(alert)
        held.ack()
        _consume(client, [*queues.values(), f"{queues['LmqDeadLetters']}.failed"])
        for alert in queues:
            operator.confirm(alert)
        timeline.scrape()
        client.push(queues["LmqPushesRefused"], b"content")
        client.push(queues["LmqMessagesExpired"], b"content")
        _consume(client, list(queues.values()))
        timeline.scrape()
        assert not timeline.firing() & OF_QUEUES

        timeline.begin()
        # What the pages of dropped and discarded messages foretell.
        _fail(client, queues["LmqMessagesDropped"])
        client.push(queues["LmqMessagesDiscarded"], b"first")
        with pytest.raises(LmqError, match="full"):
            client.push(queues["LmqMessagesDiscarded"], b"second")
        timeline.scrape()
        assert timeline.firing() >= {"LmqDeadLetters", "LmqPushesRefused"}
        assert not timeline.firing() & {"LmqMessagesDropped", "LmqMessagesDiscarded"}
