"""Orders, moves and visibility that Amazon's service was seen to have, over the SQS port in both forms."""

from __future__ import annotations

from typing import Any

import pytest

from .cluster import wait_for
from .sqs_fixtures import MakeQueue, api, arn_of, bodies, failure_of, make_queue, receive, redrive
from .sqs_http import SqsHttp

__all__ = ["api", "make_queue"]

VALUE = "InvalidParameterValue"
COUNT: dict[str, Any] = {"AttributeNames": ["ApproximateReceiveCount", "DeadLetterQueueSourceArn"]}


# --- orders -----------------------------------------------------------------------------------------------------------

SEND, TAKE, BACK, GONE = "send", "receive", "hide for 0 s", "delete"
Step = tuple[str, str, list[str]]
ORDERS: dict[str, tuple[str, list[Step]]] = {
    "a group that comes back waits for its turn": (
        ".fifo",
        [
            (SEND, "", ["a1", "b1"]),
            (TAKE, "1", ["a1"]),
            (BACK, "", ["a1"]),
            (TAKE, "1", ["b1"]),
            (TAKE, "1", ["a1"]),
        ],
    ),
    "a receive goes on with the next group": (
        ".fifo",
        [(SEND, "", ["a1", "b1", "a2", "b2"]), (TAKE, "3", ["a1", "a2", "b1"]), (TAKE, "3", [])],
    ),
    "the messages before one in flight are delivered": (
        ".fifo",
        [
            (SEND, "", ["a1", "a2", "a3"]),
            (TAKE, "3", ["a1", "a2", "a3"]),
            (BACK, "", ["a1", "a2"]),
            (TAKE, "3", ["a1", "a2"]),
            (BACK, "", ["a3"]),
            (TAKE, "3", []),
        ],
    ),
    "a deleted one frees nothing while others are in flight": (
        ".fifo",
        [
            (SEND, "", ["a1", "a2", "a3"]),
            (TAKE, "2", ["a1", "a2"]),
            (GONE, "", ["a1"]),
            (TAKE, "1", []),
            (GONE, "", ["a2"]),
            (TAKE, "1", ["a3"]),
        ],
    ),
    "a group in flight does not stop others": (
        ".fifo",
        [(SEND, "", ["a1"]), (TAKE, "1", ["a1"]), (SEND, "", ["a2", "b1"]), (TAKE, "9", ["b1"])],
    ),
    "a message that comes back is behind what waits": (
        "",
        [(SEND, "", ["-1", "-2", "-3"]), (TAKE, "1", ["-1"]), (BACK, "", ["-1"]), (TAKE, "9", ["-2", "-3", "-1"])],
    ),
    "the next one is of the tenant with the fewest in flight": (
        "",
        [
            (SEND, "", ["a1", "a2", "a3", "a4", "b1", "c1"]),
            (TAKE, "1", ["a1"]),
            (TAKE, "1", ["b1"]),
            (TAKE, "1", ["c1"]),
            (TAKE, "1", ["a2"]),
            (SEND, "", ["b2"]),
            (TAKE, "1", ["b2"]),
        ],
    ),
}


@pytest.mark.parametrize("rule", ORDERS)
def test_orders(api: SqsHttp, make_queue: MakeQueue, rule: str) -> None:
    """The first letter of a body is its group, a hyphen for none."""
    suffix, steps = ORDERS[rule]
    url = make_queue(suffix, **({"ContentBasedDeduplication": "true"} if suffix else {}))
    handles: dict[str, str] = {}
    for action, argument, given in steps:
        if action == TAKE:
            messages = receive(api, url, int(argument))
            handles |= {one["Body"]: one["ReceiptHandle"] for one in messages}
            assert [one["Body"] for one in messages] == given
        for body in [] if action == TAKE else given:
            if action == SEND:
                group = {} if body.startswith("-") else {"MessageGroupId": body[0]}
                api("SendMessage", QueueUrl=url, MessageBody=body, **group)
            elif action == BACK:
                api("ChangeMessageVisibility", QueueUrl=url, ReceiptHandle=handles[body], VisibilityTimeout=0)
            else:
                api("DeleteMessage", QueueUrl=url, ReceiptHandle=handles[body])


def test_a_delayed_message_holds_those_behind_it_in_its_group(api: SqsHttp, make_queue: MakeQueue) -> None:
    url = make_queue(".fifo", ContentBasedDeduplication="true", DelaySeconds="2")
    api("SendMessage", QueueUrl=url, MessageBody="first", MessageGroupId="a")
    api("SetQueueAttributes", QueueUrl=url, Attributes={"DelaySeconds": "0"})
    for group, body in (("a", "second"), ("b", "other")):
        api("SendMessage", QueueUrl=url, MessageBody=body, MessageGroupId=group)
    found: list[str] = []
    while len(found) < 3:
        found += bodies(api, url, WaitTimeSeconds=20)
    assert found == ["other", "first", "second"]


# --- visibility -------------------------------------------------------------------------------------------------------


def test_a_late_consumer_hides_again_what_nobody_else_received(api: SqsHttp, make_queue: MakeQueue) -> None:
    url = make_queue()
    api("SendMessage", QueueUrl=url, MessageBody="x")
    (message,) = receive(api, url, VisibilityTimeout=0)
    change = {"QueueUrl": url, "ReceiptHandle": message["ReceiptHandle"]}
    assert api("ChangeMessageVisibility", **change, VisibilityTimeout=100) == {}
    assert receive(api, url) == []
    assert api("DeleteMessage", **change) == {}


def test_a_fifo_receive_that_hides_nothing_gives_an_expired_receipt(api: SqsHttp, make_queue: MakeQueue) -> None:
    url = make_queue(".fifo", ContentBasedDeduplication="true")
    api("SendMessage", QueueUrl=url, MessageBody="x", MessageGroupId="g")
    (message,) = receive(api, url, VisibilityTimeout=0)
    error = failure_of(api, "DeleteMessage", QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    assert error.text.endswith("Reason: The receipt handle has expired.")
    (again,) = receive(api, url, **COUNT)
    assert again["Attributes"]["ApproximateReceiveCount"] == "2"


def test_a_changed_visibility_is_forgotten_with_its_delivery(api: SqsHttp, make_queue: MakeQueue) -> None:
    url = make_queue(VisibilityTimeout="1")
    api("SendMessage", QueueUrl=url, MessageBody="x")
    (message,) = receive(api, url, VisibilityTimeout=100)
    change = {"QueueUrl": url, "ReceiptHandle": message["ReceiptHandle"]}
    api("ChangeMessageVisibility", **change, VisibilityTimeout=200)
    api("ChangeMessageVisibility", **change, VisibilityTimeout=0)
    assert bodies(api, url) == ["x"]
    assert bodies(api, url, WaitTimeSeconds=20) == ["x"]


# --- dead letters -----------------------------------------------------------------------------------------------------


def test_dead_letters_go_on_along_a_chain(api: SqsHttp, make_queue: MakeQueue) -> None:
    last = make_queue()
    middle = make_queue(RedrivePolicy=redrive(api, last))
    first = make_queue(RedrivePolicy=redrive(api, middle))
    sent = api("SendMessage", QueueUrl=first, MessageBody="x")
    for url in (first, middle):
        assert [one["MessageId"] for one in receive(api, url, VisibilityTimeout=0)] == [sent["MessageId"]]
        assert receive(api, url) == []
    (dead,) = receive(api, last, **COUNT)
    assert dead["MessageId"] == sent["MessageId"]
    assert dead["Attributes"] == {"ApproximateReceiveCount": "3", "DeadLetterQueueSourceArn": arn_of(api, middle)}


def test_a_receive_goes_on_with_what_is_no_dead_letter(api: SqsHttp, make_queue: MakeQueue) -> None:
    target = make_queue()
    url = make_queue(RedrivePolicy=redrive(api, target))
    api("SendMessage", QueueUrl=url, MessageBody="poison")
    assert bodies(api, url, VisibilityTimeout=0) == ["poison"]
    api("SendMessage", QueueUrl=url, MessageBody="good")
    assert bodies(api, url) == ["good"]
    assert bodies(api, target, WaitTimeSeconds=20) == ["poison"]


def test_a_consumer_that_is_late_with_its_last_delivery_can_delete(api: SqsHttp, make_queue: MakeQueue) -> None:
    target = make_queue()
    url = make_queue(RedrivePolicy=redrive(api, target))
    api("SendMessage", QueueUrl=url, MessageBody="x")
    (message,) = receive(api, url, VisibilityTimeout=0)
    api("DeleteMessage", QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    assert receive(api, url) == []
    assert receive(api, target) == []


def test_without_the_target_a_message_is_delivered_on(api: SqsHttp, make_queue: MakeQueue) -> None:
    target = make_queue()
    url = make_queue(RedrivePolicy=redrive(api, target))
    api("DeleteQueue", QueueUrl=target)
    api("SendMessage", QueueUrl=url, MessageBody="x")
    for count in ("1", "2", "3"):
        (message,) = receive(api, url, VisibilityTimeout=0, **COUNT)
        assert message["Attributes"] == {"ApproximateReceiveCount": count}


def test_moved_messages_are_new_ones(api: SqsHttp, make_queue: MakeQueue) -> None:
    target = make_queue()
    source = make_queue(RedrivePolicy=redrive(api, target))
    sent = api("SendMessage", QueueUrl=source, MessageBody="x")
    receive(api, source, VisibilityTimeout=0)
    assert receive(api, source) == []
    api("StartMessageMoveTask", SourceArn=arn_of(api, target))
    (moved,) = receive(api, source, WaitTimeSeconds=20, **COUNT)
    assert moved["MessageId"] != sent["MessageId"]
    assert moved["Attributes"] == {"ApproximateReceiveCount": "1"}


def test_a_task_fails_with_its_destination_and_the_newest_is_listed_first(api: SqsHttp, make_queue: MakeQueue) -> None:
    target, gone, other = make_queue(), make_queue(), make_queue()
    make_queue(RedrivePolicy=redrive(api, target))
    for body in "abcde":
        api("SendMessage", QueueUrl=target, MessageBody=body)
    arn = arn_of(api, target)
    slow = {"SourceArn": arn, "DestinationArn": arn_of(api, gone), "MaxNumberOfMessagesPerSecond": 1}
    api("StartMessageMoveTask", **slow)
    api("DeleteQueue", QueueUrl=gone)

    def latest() -> dict[str, str]:
        (task,) = api("ListMessageMoveTasks", SourceArn=arn)["Results"]
        return dict(task)

    wait_for(lambda: latest()["Status"] == "FAILED", "the end of the task")
    assert latest()["FailureReason"] == "AWS.SimpleQueueService.NonExistentQueue"
    assert "TaskHandle" not in latest()
    api("StartMessageMoveTask", SourceArn=arn, DestinationArn=arn_of(api, other))
    wait_for(lambda: latest()["Status"] == "COMPLETED", "the end of the second task")
    tasks = api("ListMessageMoveTasks", SourceArn=arn, MaxResults=10)["Results"]
    assert [one["Status"] for one in tasks] == ["COMPLETED", "FAILED"]


# --- permissions and tags ---------------------------------------------------------------------------------------------


def test_the_texts_of_refused_tags(api: SqsHttp, make_queue: MakeQueue) -> None:
    url = make_queue()
    many = {str(number): "x" for number in range(51)}
    error = failure_of(api, "TagQueue", QueueUrl=url, Tags=many)
    assert (error.code, error.text) == (VALUE, f"Too many tags added for queue {url.rpartition('/')[2]}.")
    for action, parameter in (("TagQueue", "Tags"), ("UntagQueue", "TagKeys")):
        error = failure_of(api, action, QueueUrl=url)
        assert (error.code, error.text) == ("MissingParameter", f"The request must contain the parameter {parameter}.")
    if api.form == "json":
        error = failure_of(api, "UntagQueue", QueueUrl=url, TagKeys=[])
        assert (error.code, error.text) == (VALUE, "Tag keys must be between 1 and 128 characters in length.")
