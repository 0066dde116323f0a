"""Answers that the SQS port gives as Amazon's service does, by recordings and reports, in both forms."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from .sqs_fixtures import MakeQueue, api, arn_of, bodies, failure_of, make_queue, receive, redrive
from .sqs_http import SqsHttp

__all__ = ["api", "make_queue"]

NAME, VALUE = "InvalidAttributeName", "InvalidParameterValue"
POLICY = json.dumps({"deadLetterTargetArn": "dummy", "maxReceiveCount": 42})
FORM = "arn:<partition>:<service>:<region>:<account-id>:<resource-id>"
CHARACTERS = (
    "Invalid characters found. Valid unicode characters are #x9 | #xA | #xD | #x20 to #xD7FF | #xE000 to #xFFFD | #x10000"
    " to #x10FFFF"
)


def with_control(data_type: str) -> dict[str, Any]:
    return {"MessageBody": "x", "MessageAttributes": {"a": {"DataType": data_type, "StringValue": "\x08,\x0b"}}}


class Refusal(NamedTuple):
    """A request about a queue that is refused: the parameters beside its URL."""

    action: str
    given: dict[str, Any]
    code: str
    text: str


REFUSALS = {
    "a standard queue that stays one": Refusal(
        "SetQueueAttributes", {"Attributes": {"FifoQueue": "false"}}, NAME, "Unknown Attribute FifoQueue."
    ),
    "a target of dead letters that is no ARN": Refusal(
        "SetQueueAttributes",
        {"Attributes": {"RedrivePolicy": POLICY}},
        VALUE,
        f"Value {POLICY} for parameter RedrivePolicy is invalid. Reason: Invalid value for deadLetterTargetArn.",
    ),
    "a control character in an attribute": Refusal("SendMessage", with_control("String"), VALUE, CHARACTERS),
    "a control character in a number": Refusal("SendMessage", with_control("Number"), VALUE, CHARACTERS),
    "a control character in the type of an attribute": Refusal(
        "SendMessage",
        {"MessageBody": "x", "MessageAttributes": {"a": {"DataType": "String.\x08", "StringValue": "x"}}},
        VALUE,
        CHARACTERS,
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_refusals(api: SqsHttp, make_queue: MakeQueue, name: str) -> None:
    action, given, code, text = REFUSALS[name]
    error = failure_of(api, action, QueueUrl=make_queue(), **given)
    assert (error.status, error.code, error.text) == (400, code, text)


@pytest.mark.parametrize("action", ["StartMessageMoveTask", "ListMessageMoveTasks"])
def test_a_source_that_is_no_arn(api: SqsHttp, action: str) -> None:
    error = failure_of(api, action, SourceArn="dummy")
    assert (error.code, error.text) == (VALUE, f"You must use this format to specify the SourceArn: {FORM}")


def test_destinations_that_are_refused(api: SqsHttp, make_queue: MakeQueue) -> None:
    target = make_queue()
    make_queue(RedrivePolicy=redrive(api, target))
    arn = arn_of(api, target)
    for destination, text in (
        ("dummy", f"You must use this format to specify the DestinationArn: {FORM}"),
        (arn, "Source queue arn and destination queue arn cannot be the same."),
        (
            arn_of(api, make_queue(".fifo")),
            "The source queue and destination queue must be of the same queue type.",
        ),
    ):
        error = failure_of(api, "StartMessageMoveTask", SourceArn=arn, DestinationArn=destination)
        assert (error.status, error.code, error.text) == (400, VALUE, text)
    assert api("ListMessageMoveTasks", SourceArn=arn) == {}


def handle_of(queue: str, number: int) -> str:
    return base64.urlsafe_b64encode(json.dumps([number, queue]).encode()).decode()


def test_a_task_of_a_queue_that_is_gone_has_no_source(api: SqsHttp, make_queue: MakeQueue) -> None:
    queue = make_queue().rpartition("/")[2]
    for url, text in (
        (queue, "Task does not exist."),
        (queue + "-no", "The resource that you specified for the SourceArn parameter doesn't exist."),
    ):
        error = failure_of(api, "CancelMessageMoveTask", TaskHandle=handle_of(url, 123_456))
        assert (error.status, error.code, error.text) == (404, "ResourceNotFoundException", text)


def shown_in(api: SqsHttp, text: str) -> str:
    """Return a text as an answer in this form has it."""
    return text if api.form == "json" else text.replace("\x08", "\ufffd")


@pytest.mark.parametrize("parameter", ["MessageGroupId", "MessageDeduplicationId"])
def test_an_error_that_repeats_a_control_character_can_be_parsed(
    api: SqsHttp, make_queue: MakeQueue, parameter: str
) -> None:
    given = {"MessageGroupId": "g", "MessageDeduplicationId": "d", parameter: "a\x08"}
    error = failure_of(api, "SendMessage", QueueUrl=make_queue(".fifo"), MessageBody="x", **given)
    assert error.code == VALUE
    assert error.text.startswith(shown_in(api, f"Value a\x08 for parameter {parameter} is invalid."))


def test_a_tag_with_a_control_character_can_be_parsed(api: SqsHttp, make_queue: MakeQueue) -> None:
    url = make_queue()
    api("TagQueue", QueueUrl=url, Tags={"a": "b\x08"})
    assert api("ListQueueTags", QueueUrl=url) == {"Tags": {"a": shown_in(api, "b\x08")}}


# --- orders of FIFO queues --------------------------------------------------------------------------------------------


@pytest.fixture
def fifo(api: SqsHttp, make_queue: MakeQueue) -> Callable[..., str]:
    """Creates a FIFO queue with messages whose groups are the first part of their bodies."""

    def make(sent: str, **attributes: str) -> str:
        url = make_queue(".fifo", ContentBasedDeduplication="true", **attributes)
        for body in sent.split():
            api("SendMessage", QueueUrl=url, MessageBody=body, MessageGroupId=body.partition("-")[0])
        return url

    return make


def test_groups_take_turns_after_receives_that_hide_nothing(api: SqsHttp, fifo: Callable[..., str]) -> None:
    url = fifo("a-1 b-1 b-2 c-1 a-2")
    assert bodies(api, url, 3, VisibilityTimeout=0) == ["a-1", "a-2", "b-1"]
    assert bodies(api, url, VisibilityTimeout=0) == ["c-1", "a-1", "a-2", "b-1", "b-2"]


def test_a_group_of_which_one_is_in_flight_stays_hidden(api: SqsHttp, fifo: Callable[..., str]) -> None:
    url = fifo("a-1 b-1 a-2 b-2 a-2 a-3 c-1")
    first, _second = receive(api, url, 2)
    api("DeleteMessage", QueueUrl=url, ReceiptHandle=first["ReceiptHandle"])
    assert bodies(api, url) == ["b-1", "b-2", "c-1"]


# --- dead letters -----------------------------------------------------------------------------------------------------


def test_a_dead_letter_keeps_what_it_was_sent_with(api: SqsHttp, make_queue: MakeQueue) -> None:
    target = make_queue()
    source = make_queue(RedrivePolicy=redrive(api, target))
    trace = "Root=1-5759e988-bd862e3fe1be46a994272793;Parent=53995c3f42cd8ad8;Sampled=1"
    given = {
        "MessageAttributes": {"MyAttribute": {"DataType": "String", "StringValue": "foobar"}},
        "MessageSystemAttributes": {"AWSTraceHeader": {"DataType": "String", "StringValue": trace}},
    }
    sent = api("SendMessage", QueueUrl=source, MessageBody="x", **given)
    assert sent["MD5OfMessageSystemAttributes"] == "5ae4d5d7636402d80f4eb6d213245a88"
    everything: dict[str, Any] = {"AttributeNames": ["All"], "MessageAttributeNames": ["All"]}
    (message,) = receive(api, source, VisibilityTimeout=0, **everything)
    assert message["MD5OfMessageAttributes"] == "adb59cd4678ea5a855436b949cd07ab6"
    assert message["Attributes"]["AWSTraceHeader"] == trace
    assert receive(api, source) == []
    (dead,) = receive(api, target, **everything)
    more = {"ApproximateReceiveCount": "2", "DeadLetterQueueSourceArn": arn_of(api, source)}
    assert dead["Attributes"] == {**message["Attributes"], **more}
    for member in ("MessageId", "MessageAttributes", "MD5OfMessageAttributes"):
        assert dead[member] == message[member]
