"""FIFO queues and dead letters over the SQS port, in both forms."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from .cluster import wait_for
from .sqs_fixtures import MakeQueue, api, bodies, failure_of, make_queue, receive
from .sqs_http import SqsHttp

__all__ = ["api", "make_queue"]

VALUE = "InvalidParameterValue"
WRONG_KIND = "Reason: The request include parameter that is not valid for this queue type."
NO_DEDUPLICATION = (
    "The queue should either have ContentBasedDeduplication enabled or MessageDeduplicationId provided explicitly"
)


def send(api: SqsHttp, url: str, body: str, group: str = "g", key: str | None = None) -> dict[str, str]:
    given = {"MessageDeduplicationId": body if key is None else key}
    sent: dict[str, str] = api("SendMessage", QueueUrl=url, MessageBody=body, MessageGroupId=group, **given)
    return sent


def delete(api: SqsHttp, url: str, *messages: dict[str, Any]) -> None:
    for one in messages:
        api("DeleteMessage", QueueUrl=url, ReceiptHandle=one["ReceiptHandle"])


# --- sending ----------------------------------------------------------------------------------------------------------


def test_what_a_message_of_a_fifo_queue_needs(api: SqsHttp, make_queue: MakeQueue) -> None:
    url = make_queue(".fifo")
    given = {"QueueUrl": url, "MessageBody": "x"}
    error = failure_of(api, "SendMessage", **given, MessageDeduplicationId="a")
    assert (error.code, error.text) == ("MissingParameter", "The request must contain the parameter MessageGroupId.")
    error = failure_of(api, "SendMessage", **given, MessageGroupId="g")
    assert (error.code, error.text) == (VALUE, NO_DEDUPLICATION)
    whole = {"MessageGroupId": "g", "MessageDeduplicationId": "a"}
    error = failure_of(api, "SendMessage", **given, **whole, DelaySeconds=2)
    assert (error.code, error.text) == (VALUE, f"Value 2 for parameter DelaySeconds is invalid. {WRONG_KIND}")
    for key in ("", "a b", "k" * 129, "é"):
        assert failure_of(api, "SendMessage", **given, MessageGroupId="g", MessageDeduplicationId=key).code == VALUE
    assert api("SendMessage", **given, **whole, DelaySeconds=0)["SequenceNumber"].isdecimal()
    for name in whole:
        part = {key: value for key, value in whole.items() if key != name}
        entries = [{"Id": "a", "MessageBody": "x", **whole}, {"Id": "b", "MessageBody": "x", **part}]
        assert failure_of(api, "SendMessageBatch", QueueUrl=url, Entries=entries).code == VALUE


def test_sequence_numbers_grow_in_a_queue(api: SqsHttp, make_queue: MakeQueue) -> None:
    url = make_queue(".fifo")
    numbers = [send(api, url, body)["SequenceNumber"] for body in "abc"]
    assert numbers == sorted(numbers)
    assert {len(number) for number in numbers} == {20}
    messages = receive(api, url, AttributeNames=["SequenceNumber", "MessageGroupId", "MessageDeduplicationId"])
    assert [one["Attributes"] for one in messages] == [
        {"SequenceNumber": number, "MessageGroupId": "g", "MessageDeduplicationId": body}
        for number, body in zip(numbers, "abc", strict=True)
    ]


def test_the_same_id_stores_nothing_whatever_the_body(api: SqsHttp, make_queue: MakeQueue) -> None:
    url = make_queue(".fifo")
    first = send(api, url, "a", key="k")
    other = send(api, url, "b", key="k")
    assert {name: other[name] for name in ("MessageId", "SequenceNumber")} == {
        name: first[name] for name in ("MessageId", "SequenceNumber")
    }
    assert other["MD5OfMessageBody"] != first["MD5OfMessageBody"]
    assert send(api, url, "c", group="h", key="k")["MessageId"] == first["MessageId"]
    messages = receive(api, url)
    assert [one["Body"] for one in messages] == ["a"]
    delete(api, url, *messages)
    assert send(api, url, "a", key="k")["MessageId"] == first["MessageId"]
    assert receive(api, url) == []


def test_the_hash_of_the_body_is_an_id(api: SqsHttp, make_queue: MakeQueue) -> None:
    url = make_queue(".fifo", ContentBasedDeduplication="true")
    given = {"QueueUrl": url, "MessageBody": "x", "MessageGroupId": "g"}
    attributes = {"a": {"DataType": "String", "StringValue": "b"}}
    first = api("SendMessage", **given)
    assert api("SendMessage", **given, MessageAttributes=attributes)["MessageId"] == first["MessageId"]
    assert api("SendMessage", **given, MessageDeduplicationId="own")["MessageId"] != first["MessageId"]
    digest = "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"
    shown = [one["Attributes"]["MessageDeduplicationId"] for one in receive(api, url, AttributeNames=["All"])]
    assert shown == [digest, "own"]


def test_ids_may_count_in_their_group(api: SqsHttp, make_queue: MakeQueue) -> None:
    url = make_queue(".fifo", DeduplicationScope="messageGroup")
    ids = [send(api, url, "x", group, "k")["MessageId"] for group in ("g", "h", "g")]
    assert ids[0] == ids[2] != ids[1]


def test_a_purge_forgets_the_ids(api: SqsHttp, make_queue: MakeQueue) -> None:
    url = make_queue(".fifo")
    first = send(api, url, "x")
    api("PurgeQueue", QueueUrl=url)
    assert send(api, url, "x")["MessageId"] != first["MessageId"]
    assert bodies(api, url) == ["x"]


# --- receiving --------------------------------------------------------------------------------------------------------


def test_one_receive_takes_of_a_group_what_fits_then_of_the_next(api: SqsHttp, make_queue: MakeQueue) -> None:
    url = make_queue(".fifo")
    for group, body in (("g1", "a1"), ("g2", "b1"), ("g1", "a2"), ("g2", "b2"), ("g1", "a3")):
        send(api, url, body, group)
    assert bodies(api, url, 4) == ["a1", "a2", "a3", "b1"]
    assert receive(api, url) == []


def test_a_group_waits_until_all_that_is_in_flight_is_settled(api: SqsHttp, make_queue: MakeQueue) -> None:
    url = make_queue(".fifo")
    for body in "abcd":
        send(api, url, body)
    first, second = receive(api, url, 2)
    assert receive(api, url) == []
    delete(api, url, first)
    assert receive(api, url) == []
    delete(api, url, second)
    assert bodies(api, url) == ["c", "d"]


def test_the_first_alone_is_delivered_if_the_second_is_in_flight(api: SqsHttp, make_queue: MakeQueue) -> None:
    url = make_queue(".fifo")
    for body in "abc":
        send(api, url, body)
    first, _second, _third = receive(api, url, 3)
    api("ChangeMessageVisibility", QueueUrl=url, ReceiptHandle=first["ReceiptHandle"], VisibilityTimeout=0)
    assert bodies(api, url) == ["a"]
    assert receive(api, url) == []


def test_a_message_that_comes_back_has_its_place(api: SqsHttp, make_queue: MakeQueue) -> None:
    url = make_queue(".fifo")
    for body in "abc":
        send(api, url, body)
    for one in reversed(receive(api, url, 3)):
        api("ChangeMessageVisibility", QueueUrl=url, ReceiptHandle=one["ReceiptHandle"], VisibilityTimeout=0)
    assert bodies(api, url) == ["a", "b", "c"]


def test_a_receipt_whose_time_is_over_is_refused(api: SqsHttp, make_queue: MakeQueue) -> None:
    url = make_queue(".fifo")
    send(api, url, "x")
    (message,) = receive(api, url, VisibilityTimeout=1)
    handle = message["ReceiptHandle"]
    time.sleep(1.2)
    text = f"Value {handle} for parameter ReceiptHandle is invalid. Reason: The receipt handle has expired."
    requests = [("DeleteMessage", {}), ("ChangeMessageVisibility", {"VisibilityTimeout": 10})]
    for action, more in requests:
        error = failure_of(api, action, QueueUrl=url, ReceiptHandle=handle, **more)
        assert (error.status, error.code, error.text) == (400, VALUE, text)
    batch = api("DeleteMessageBatch", QueueUrl=url, Entries=[{"Id": "a", "ReceiptHandle": handle}])
    assert [(one["Code"], one["Message"]) for one in batch["Failed"]] == [(VALUE, text)]
    (again,) = receive(api, url)
    assert api("DeleteMessage", QueueUrl=url, ReceiptHandle=handle) == {}
    delete(api, url, again)
    for _ in range(2):
        delete(api, url, again)
    assert receive(api, url) == []


def test_held_messages_are_counted_as_visible(api: SqsHttp, make_queue: MakeQueue) -> None:
    url = make_queue(".fifo")
    for body in "abc":
        send(api, url, body)
    receive(api, url, 1)
    counts = api("GetQueueAttributes", QueueUrl=url, AttributeNames=["All"])["Attributes"]
    found = [counts[f"ApproximateNumberOfMessages{kind}"] for kind in ("", "NotVisible", "Delayed")]
    assert found == ["2", "1", "0"]


# --- dead letters -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["", ".fifo"])
def test_a_message_goes_to_the_dead_letters_when_it_would_be_delivered_again(
    api: SqsHttp, make_queue: MakeQueue, suffix: str
) -> None:
    target = make_queue(suffix)
    arn = api("GetQueueAttributes", QueueUrl=target, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    source = make_queue(suffix, RedrivePolicy=json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 2}))
    given = {"MessageGroupId": "g", "MessageDeduplicationId": "k"} if suffix else {}
    attributes = {"a": {"DataType": "String", "StringValue": "b"}}
    sent = api("SendMessage", QueueUrl=source, MessageBody="x", MessageAttributes=attributes, **given)
    names: dict[str, Any] = {"AttributeNames": ["All"], "MessageAttributeNames": ["All"]}
    for count in ("1", "2"):
        (message,) = receive(api, source, VisibilityTimeout=0, **names)
        assert message["Attributes"]["ApproximateReceiveCount"] == count
    assert receive(api, target) == []
    assert receive(api, source) == []
    (dead,) = wait_for(lambda: receive(api, target, **names), "the dead letter")
    assert (dead["Body"], dead["MessageId"]) == ("x", sent["MessageId"])
    assert dead["MessageAttributes"] == attributes
    shown, before = dead["Attributes"], message["Attributes"]
    assert shown["ApproximateReceiveCount"] == "3"
    for name in ("SentTimestamp", "ApproximateFirstReceiveTimestamp", "MessageGroupId", "MessageDeduplicationId"):
        assert shown.get(name) == before.get(name), name
    source_arn = api("GetQueueAttributes", QueueUrl=source, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    assert shown["DeadLetterQueueSourceArn"] == source_arn


def test_a_changed_limit_holds_for_messages_already_there(api: SqsHttp, make_queue: MakeQueue) -> None:
    target, source = make_queue(), make_queue()
    arn = api("GetQueueAttributes", QueueUrl=target, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    api("SendMessage", QueueUrl=source, MessageBody="x")
    for _ in range(3):
        assert bodies(api, source, VisibilityTimeout=0) == ["x"]
    policy = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 3})
    api("SetQueueAttributes", QueueUrl=source, Attributes={"RedrivePolicy": policy})
    assert receive(api, source) == []
    assert bodies(api, target, WaitTimeSeconds=5) == ["x"]
