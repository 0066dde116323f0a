"""``lmq-admin import sqs``: every message once, also after interruptions, with attributes and groups."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from lmqcluster_cli.admin.imports import import_sqs
from lmqcluster_cli.shared.connection.api import Api

from .cluster import NodeProcess
from .programs import run

KEYS = {"AWS_ACCESS_KEY_ID": "any", "AWS_SECRET_ACCESS_KEY": "any", "AWS_EC2_METADATA_DISABLED": "true"}
ATTRIBUTES = {
    "text": {"DataType": "String", "StringValue": "caf\u00e9"},
    "count": {"DataType": "Number.int", "StringValue": "007"},
    "raw": {"DataType": "Binary", "BinaryValue": b"\x00\xff"},
}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with NodeProcess(tmp_path_factory.mktemp("source")) as process:
        yield process


def client(node: NodeProcess) -> Any:
    return boto3.client(
        "sqs",
        endpoint_url=f"http://{node.sqs}",
        region_name="us-east-1",
        aws_access_key_id="any",
        aws_secret_access_key="any",
    )


def received(sqs: Any, url: str, count: int) -> list[dict[str, Any]]:
    """Receive this number of messages and delete them."""
    found: list[dict[str, Any]] = []
    while len(found) < count:
        messages = sqs.receive_message(
            QueueUrl=url,
            MaxNumberOfMessages=10,
            WaitTimeSeconds=5,
            MessageAttributeNames=["All"],
            MessageSystemAttributeNames=["All"],
        )["Messages"]
        found += messages
        for one in messages:
            sqs.delete_message(QueueUrl=url, ReceiptHandle=one["ReceiptHandle"])
    assert "Messages" not in sqs.receive_message(QueueUrl=url)
    return found


def test_queues_are_drained(source: NodeProcess, node: NodeProcess, queue_name: str) -> None:
    there, here = client(source), client(node)
    name = queue_name[-60:]
    url = there.create_queue(QueueName=name)["QueueUrl"]
    for number in range(25):
        there.send_message(QueueUrl=url, MessageBody=f"{number} \U0001f600", MessageAttributes=ATTRIBUTES)
    there.send_message(QueueUrl=url, MessageBody="hidden", DelaySeconds=600)
    fifo = {"FifoQueue": "true", "ContentBasedDeduplication": "true"}
    ordered = there.create_queue(QueueName=f"{name}.fifo", Attributes=fifo)["QueueUrl"]
    for number in range(12):
        there.send_message(QueueUrl=ordered, MessageBody=str(number), MessageGroupId="g")
    urls = [one.create_queue(QueueName=name)["QueueUrl"] for one in (here, there)]
    urls.append(here.create_queue(QueueName=f"{name}.fifo", Attributes=fifo)["QueueUrl"])
    done = run("lmq-admin", "--node", node.http, "import", "sqs", url, ordered, environment=KEYS)
    assert done.code == 0, done.err
    rows = [line.split("\t") for line in done.out.splitlines()[-2:]]
    assert rows == [[name, "25", "1"], [f"{name}.fifo", "12", "0"]]
    messages = received(here, urls[0], 25)
    assert [one["Body"] for one in messages] == [f"{number} \U0001f600" for number in range(25)]
    assert all(one["MessageAttributes"] == ATTRIBUTES for one in messages)
    in_order = received(here, urls[2], 12)
    assert [one["Body"] for one in in_order] == [str(number) for number in range(12)]
    assert {one["Attributes"]["MessageGroupId"] for one in in_order} == {"g"}


def test_an_interrupted_import_stores_nothing_twice(
    source: NodeProcess, node: NodeProcess, queue_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    there, here = client(source), client(node)
    name = queue_name[-60:]
    url = there.create_queue(QueueName=name)["QueueUrl"]
    there.send_message(QueueUrl=url, MessageBody="a")
    there.send_message(QueueUrl=url, MessageBody="b")
    for variable, value in KEYS.items():
        monkeypatch.setenv(variable, value)
    # Shorter than a restart of the program: the first run pushes, and dies before it deletes.
    monkeypatch.setattr(import_sqs, "HIDDEN_S", 0)
    monkeypatch.setattr(import_sqs, "WAIT_S", 1)
    reader = import_sqs.Source(url)
    with monkeypatch.context() as patch:
        patch.setattr(import_sqs.Source, "delete", interrupted)
        with pytest.raises(KeyboardInterrupt):
            import_sqs._take_over(reader, name, Api(node.http))
    monkeypatch.setattr(import_sqs, "HIDDEN_S", 60)
    assert import_sqs._take_over(reader, name, Api(node.http)) == 2
    assert reader.left() == 0
    target = here.create_queue(QueueName=name)["QueueUrl"]
    assert [one["Body"] for one in received(here, target, 2)] == ["a", "b"]


def interrupted(*_: Any) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("url", ["orders", "ftp://host/1/orders", "http://host/"])
def test_a_url_names_a_queue(node: NodeProcess, url: str) -> None:
    assert run("lmq-admin", "--node", node.http, "import", "sqs", url).code == 2
