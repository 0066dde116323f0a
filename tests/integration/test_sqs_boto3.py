"""The SQS port with boto3, AWS's SDK for Python, which checks digests and makes exceptions of shapes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from .cluster import Cluster, NodeProcess

REGION = "eu-central-1"


def client_of(address: str) -> Any:
    return boto3.client(
        "sqs",
        endpoint_url=f"http://{address}",
        region_name=REGION,
        aws_access_key_id="any",
        aws_secret_access_key="any",
        config=Config(retries={"max_attempts": 0}, read_timeout=60),
    )


@pytest.fixture(scope="module", params=[0, 2], ids=["one process", "front ends"])
def sqs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    node = NodeProcess(tmp_path_factory.mktemp("boto3"))
    if request.param:
        node.arguments = (*node.arguments, "--front-ends", str(request.param))
    with node:
        client = client_of(node.sqs)
        yield client
        client.close()


@pytest.fixture
def url(sqs: Any, queue_name: str) -> str:
    return str(sqs.create_queue(QueueName=queue_name[-60:])["QueueUrl"])


def test_the_life_of_a_message(sqs: Any, url: str) -> None:
    attributes = {
        "text": {"DataType": "String", "StringValue": "é"},
        "number": {"DataType": "Number.int", "StringValue": "12"},
        "bytes": {"DataType": "Binary", "BinaryValue": b"\x00\xff"},
    }
    sent = sqs.send_message(QueueUrl=url, MessageBody="héllo €", MessageAttributes=attributes)
    (message,) = sqs.receive_message(
        QueueUrl=url, MessageAttributeNames=["All"], MessageSystemAttributeNames=["All"], WaitTimeSeconds=5
    )["Messages"]
    assert message["Body"] == "héllo €"
    assert message["MessageId"] == sent["MessageId"]
    assert message["MessageAttributes"] == attributes
    assert message["Attributes"]["ApproximateReceiveCount"] == "1"
    handle = message["ReceiptHandle"]
    sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=handle, VisibilityTimeout=60)
    sqs.delete_message(QueueUrl=url, ReceiptHandle=handle)
    assert "Messages" not in sqs.receive_message(QueueUrl=url)


def test_batches(sqs: Any, url: str) -> None:
    entries = [{"Id": str(number), "MessageBody": str(number)} for number in range(10)]
    sent = sqs.send_message_batch(QueueUrl=url, Entries=entries)
    assert [one["Id"] for one in sent["Successful"]] == [str(number) for number in range(10)]
    assert "Failed" not in sent
    messages = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10)["Messages"]
    assert [one["Body"] for one in messages] == [str(number) for number in range(10)]
    gone = [{"Id": one["MessageId"], "ReceiptHandle": one["ReceiptHandle"]} for one in messages]
    changes = [{**one, "VisibilityTimeout": 100} for one in gone]
    assert len(sqs.change_message_visibility_batch(QueueUrl=url, Entries=changes)["Successful"]) == 10
    assert len(sqs.delete_message_batch(QueueUrl=url, Entries=gone)["Successful"]) == 10


def test_exceptions(sqs: Any, url: str) -> None:
    with pytest.raises(sqs.exceptions.QueueDoesNotExist) as caught:
        sqs.get_queue_url(QueueName="no-such-queue")
    assert caught.value.response["Error"] == {
        "Message": "The specified queue does not exist.",
        "Code": "AWS.SimpleQueueService.NonExistentQueue",
        "QueryErrorCode": "QueueDoesNotExist",
        "Type": "Sender",
    }
    with pytest.raises(sqs.exceptions.ReceiptHandleIsInvalid):
        sqs.delete_message(QueueUrl=url, ReceiptHandle="garbage")
    with pytest.raises(sqs.exceptions.QueueNameExists):
        sqs.create_queue(QueueName=url.rpartition("/")[2], Attributes={"DelaySeconds": "7"})
    with pytest.raises(sqs.exceptions.EmptyBatchRequest):
        sqs.send_message_batch(QueueUrl=url, Entries=[])
    with pytest.raises(ClientError) as value:
        sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=11)
    assert value.value.response["Error"]["Code"] == "InvalidParameterValue"


def test_the_region_of_the_signature_is_that_of_arns(sqs: Any, url: str) -> None:
    shown = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]
    assert shown["QueueArn"] == f"arn:aws:sqs:{REGION}:000000000000:{url.rpartition('/')[2]}"


def test_pages_of_queues(sqs: Any, queue_name: str) -> None:
    names = [f"{queue_name[-50:]}-{number}" for number in range(5)]
    for name in names:
        sqs.create_queue(QueueName=name, tags={"a": "b"})
    pages = sqs.get_paginator("list_queues").paginate(
        QueueNamePrefix=queue_name[-50:], PaginationConfig={"PageSize": 2}
    )
    found = [[url.rpartition("/")[2] for url in page["QueueUrls"]] for page in pages]
    assert found == [names[:2], names[2:4], names[4:]]


def test_a_send_wakes_a_receive(sqs: Any, url: str) -> None:
    found: list[Any] = []
    waiting = threading.Thread(
        target=lambda: found.append(sqs.receive_message(QueueUrl=url, WaitTimeSeconds=20, MaxNumberOfMessages=10))
    )
    waiting.start()
    sqs.send_message(QueueUrl=url, MessageBody="x")
    waiting.join(30)
    assert [one["Body"] for one in found[0]["Messages"]] == ["x"]
    sqs.purge_queue(QueueUrl=url)


def test_any_node_serves_any_queue(tmp_path: Path) -> None:
    with Cluster(3, directory=tmp_path) as cluster:
        first, second, third = (client_of(node.sqs) for node in cluster)
        url = first.create_queue(QueueName="q", Attributes={"VisibilityTimeout": "77"})["QueueUrl"]
        assert second.get_queue_attributes(QueueUrl=url, AttributeNames=["VisibilityTimeout"])["Attributes"] == {
            "VisibilityTimeout": "77"
        }
        sent = second.send_message(QueueUrl="q", MessageBody="x")
        (message,) = third.receive_message(QueueUrl=url, WaitTimeSeconds=10)["Messages"]
        assert message["MessageId"] == sent["MessageId"]
        first.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
        second.delete_queue(QueueUrl=url)
        with pytest.raises(third.exceptions.QueueDoesNotExist):
            third.send_message(QueueUrl=url, MessageBody="x")
