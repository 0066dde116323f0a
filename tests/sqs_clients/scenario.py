"""boto3 as a program uses it, of any release. Arguments: the URL of a port, a prefix for names of queues.

With a third argument, that number of messages is sent and received; a line says when a quarter has been sent.
"""

from __future__ import annotations

import sys
import uuid
from typing import Any

import boto3
from botocore.exceptions import ClientError

ATTRIBUTES = {
    "text": {"DataType": "String", "StringValue": "caf\u00e9 <&>"},
    "count": {"DataType": "Number.int", "StringValue": "007"},
    "raw": {"DataType": "Binary", "BinaryValue": bytes(range(256))},
}


def error_of(call: Any, **parameters: Any) -> ClientError:
    """Return the error of a call that must fail."""
    try:
        call(**parameters)
    except ClientError as exc:
        return exc
    raise AssertionError("the call has no error")


def code_of(error: ClientError) -> str:
    return str(error.response["Error"]["Code"])


def received(sqs: Any, url: str, count: int, **more: Any) -> list[dict[str, Any]]:
    """Receive until there are that many messages."""
    found: list[dict[str, Any]] = []
    while len(found) < count:
        answer = sqs.receive_message(
            QueueUrl=url, MaxNumberOfMessages=10, WaitTimeSeconds=20, MessageAttributeNames=["All"], **more
        )
        found += answer["Messages"]
    assert len(found) == count, found
    return found


def standard(sqs: Any, name: str) -> None:
    url = sqs.create_queue(QueueName=name, Attributes={"VisibilityTimeout": "120"}, tags={"team": "a b"})["QueueUrl"]
    assert sqs.get_queue_url(QueueName=name)["QueueUrl"] == url
    assert sqs.list_queue_tags(QueueUrl=url)["Tags"] == {"team": "a b"}
    sent = sqs.send_message(QueueUrl=url, MessageBody="first\r\n\U0001f600", MessageAttributes=ATTRIBUTES)
    entries = [{"Id": f"n{number}", "MessageBody": f"body {number}"} for number in range(3)]
    batch = sqs.send_message_batch(QueueUrl=url, Entries=[*entries, {"Id": "bad", "MessageBody": "\x01"}])
    assert [one["Id"] for one in batch["Successful"]] == ["n0", "n1", "n2"]
    assert [one["Id"] for one in batch["Failed"]] == ["bad"]
    messages = received(sqs, url, 4, AttributeNames=["All"])
    first = messages[0]
    assert (first["Body"], first["MessageId"]) == ("first\r\n\U0001f600", sent["MessageId"])
    assert first["MessageAttributes"] == ATTRIBUTES
    assert first["MD5OfMessageAttributes"] == sent["MD5OfMessageAttributes"]
    assert first["Attributes"]["ApproximateReceiveCount"] == "1"
    sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=first["ReceiptHandle"], VisibilityTimeout=0)
    (again,) = received(sqs, url, 1, AttributeNames=["ApproximateReceiveCount"])
    assert (again["MessageId"], again["Attributes"]) == (sent["MessageId"], {"ApproximateReceiveCount": "2"})
    handles = [{"Id": str(n), "ReceiptHandle": one["ReceiptHandle"]} for n, one in enumerate([again, *messages[1:]])]
    assert len(sqs.delete_message_batch(QueueUrl=url, Entries=handles)["Successful"]) == 4
    counts = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    assert counts["ApproximateNumberOfMessages"] == counts["ApproximateNumberOfMessagesNotVisible"] == "0"
    sqs.delete_queue(QueueUrl=url)
    error = error_of(sqs.send_message, QueueUrl=url, MessageBody="x")
    assert isinstance(error, sqs.exceptions.QueueDoesNotExist)
    assert code_of(error) == "AWS.SimpleQueueService.NonExistentQueue"


def fifo(sqs: Any, name: str) -> None:
    attributes = {"FifoQueue": "true", "ContentBasedDeduplication": "true"}
    url = sqs.create_queue(QueueName=f"{name}.fifo", Attributes=attributes)["QueueUrl"]
    for group, body in (("a", "a1"), ("b", "b1"), ("a", "a2"), ("a", "a1")):
        sqs.send_message(QueueUrl=url, MessageBody=body, MessageGroupId=group)
    messages = received(sqs, url, 3, AttributeNames=["MessageGroupId"])
    ordered = [one["Body"] for one in messages if one["Attributes"]["MessageGroupId"] == "a"]
    assert ordered == ["a1", "a2"]
    for one in messages:
        sqs.delete_message(QueueUrl=url, ReceiptHandle=one["ReceiptHandle"])
    sqs.delete_queue(QueueUrl=url)


def dead_letters(sqs: Any, name: str) -> None:
    dead = sqs.create_queue(QueueName=f"{name}-dead")["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=dead, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    policy = f'{{"deadLetterTargetArn": "{arn}", "maxReceiveCount": "1"}}'
    url = sqs.create_queue(QueueName=name, Attributes={"RedrivePolicy": policy, "VisibilityTimeout": "0"})["QueueUrl"]
    sqs.send_message(QueueUrl=url, MessageBody="poison")
    received(sqs, url, 1)
    assert "Messages" not in sqs.receive_message(QueueUrl=url)
    assert received(sqs, dead, 1)[0]["Body"] == "poison"
    for one in (url, dead):
        sqs.delete_queue(QueueUrl=one)


def strangers(address: str) -> None:
    for key, secret, code in (("stranger", "x", "InvalidClientTokenId"), (None, "x", "SignatureDoesNotMatch")):
        known = boto3.Session().get_credentials().access_key
        client = boto3.client("sqs", endpoint_url=address, aws_access_key_id=key or known, aws_secret_access_key=secret)
        assert code_of(error_of(client.list_queues)) == code


def flow(sqs: Any, name: str, count: int) -> None:
    """Send and receive messages: each must be stored once, whatever happens to the nodes."""
    url = sqs.create_queue(QueueName=name)["QueueUrl"]
    for number in range(count):
        sqs.send_message(QueueUrl=url, MessageBody=str(number))
        if number == count // 4:
            print("a quarter has been sent", flush=True)
    bodies: dict[str, str] = {}
    while len(bodies) < count:
        for one in sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, WaitTimeSeconds=20).get("Messages", ()):
            bodies[one["MessageId"]] = one["Body"]
            sqs.delete_message(QueueUrl=url, ReceiptHandle=one["ReceiptHandle"])
    assert sorted(map(int, bodies.values())) == list(range(count))
    left = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    assert left["ApproximateNumberOfMessages"] == left["ApproximateNumberOfMessagesNotVisible"] == "0"


if __name__ == "__main__":
    _program, address, prefix, *more = sys.argv
    client = boto3.client("sqs", endpoint_url=address)
    if more:
        flow(client, prefix, int(more[0]))
        sys.exit()
    standard(client, f"{prefix}-{uuid.uuid4().hex[:8]}")
    fifo(client, prefix)
    dead_letters(client, f"{prefix}-poisoned")
    strangers(address)
    print(boto3.__version__)
