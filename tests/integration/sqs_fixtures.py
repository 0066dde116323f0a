"""Fixtures of tests of the SQS port: clients in both forms, and queues."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from .cluster import NodeProcess, wait_for
from .sqs_http import SqsHttp, SqsRefusedError

__all__ = ["MakeQueue", "api", "failure_of", "make_queue", "wait_for_receives"]

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


def failure_of(api: SqsHttp, action: str, **parameters: Any) -> SqsRefusedError:
    """Return the error of an action that must fail."""
    with pytest.raises(SqsRefusedError) as caught:
        api(action, **parameters)
    return caught.value


def wait_for_receives(node: NodeProcess, queue: str, count: int) -> None:
    """Wait until this number of receives wait at a node for messages of a queue, given by its name or URL."""
    path = f"/v1/queues/{queue.rpartition('/')[2]}"
    wait_for(lambda: node.get_json(path)["waiting_pulls"] == count, f"{count} receives wait")
