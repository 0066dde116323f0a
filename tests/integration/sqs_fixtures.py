"""Fixtures of tests of the SQS port: clients in both forms, and queues."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from .cluster import NodeProcess, wait_for
from .sqs_http import SqsHttp, SqsRefusedError

__all__ = [
    "MakeQueue", "api", "arn_of", "bodies", "failure_of", "make_queue", "receive", "redrive", "wait_for_receives",
]  # fmt: skip

MakeQueue = Callable[..., str]
"""Creates a queue with attributes, of which a ``.fifo`` one gets ``FifoQueue``; returns its URL."""


@pytest.fixture(params=["json", "query"])
def api(request: pytest.FixtureRequest, node: NodeProcess) -> SqsHttp:
    return SqsHttp(node.sqs, request.param)


@pytest.fixture
def make_queue(api: SqsHttp, new_queue_name: Callable[[], str]) -> MakeQueue:
    def make(suffix: str = "", **attributes: str) -> str:
        name = new_queue_name()[-60:] + suffix
        if suffix == ".fifo":
            attributes = {"FifoQueue": "true", **attributes}
        url: str = api("CreateQueue", QueueName=name, **({"Attributes": attributes} if attributes else {}))["QueueUrl"]
        return url

    return make


def receive(api: SqsHttp, url: str, count: int = 10, **more: Any) -> list[dict[str, Any]]:
    """Return up to `count` messages of a queue."""
    found: list[dict[str, Any]] = api("ReceiveMessage", QueueUrl=url, MaxNumberOfMessages=count, **more).get(
        "Messages", []
    )
    return found


def bodies(api: SqsHttp, url: str, count: int = 10, **more: Any) -> list[str]:
    """Receive messages; return their bodies."""
    return [one["Body"] for one in receive(api, url, count, **more)]


def arn_of(api: SqsHttp, url: str) -> str:
    """Return the ARN of a queue."""
    found = api("GetQueueAttributes", QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]
    return str(found["QueueArn"])


def redrive(api: SqsHttp, url: str, count: Any = 1) -> str:
    """Return a redrive policy to the queue with this URL."""
    return json.dumps({"deadLetterTargetArn": arn_of(api, url), "maxReceiveCount": count})


def failure_of(api: SqsHttp, action: str, **parameters: Any) -> SqsRefusedError:
    """Return the error of an action that must fail."""
    with pytest.raises(SqsRefusedError) as caught:
        api(action, **parameters)
    return caught.value


def wait_for_receives(node: NodeProcess, queue: str, count: int) -> None:
    """Wait until this number of receives wait at a node for messages of a queue, given by its name or URL."""
    path = f"/v1/queues/{queue.rpartition('/')[2]}"
    wait_for(lambda: node.get_json(path)["waiting_pulls"] == count, f"{count} receives wait")
