"""Messages over the SQS port, in both forms: sends, receives, receipts, batches, digests, and the texts of errors."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from typing import Any

import pytest

from .cluster import NodeProcess, wait_for
from .sqs_fixtures import MakeQueue, api, failure_of, make_queue, wait_for_receives
from .sqs_http import SqsHttp

__all__ = ["api", "make_queue"]

EXPIRED = "Reason: The receipt handle has expired."
GONE = "Reason: Message does not exist or is not available for visibility timeout change."


def md5(text: str) -> str:
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


def receive(api: SqsHttp, url: str, **more: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = api("ReceiveMessage", QueueUrl=url, **more).get("Messages", [])
    return found


def string(value: str, kind: str = "String") -> dict[str, Any]:
    return {"DataType": kind, "StringValue": value}


def binary(value: bytes, kind: str = "Binary") -> dict[str, Any]:
    return {"DataType": kind, "BinaryValue": value}


# --- sending and receiving --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body", ["x", "héllo €😀", "a\r\nb\rc\nd\te", '<a href="&amp;\'">]]>', " ", "x" * 200_000, 'é\\"' * 40_000]
)
def test_a_body_comes_back_as_it_was_sent(api: SqsHttp, make_queue: MakeQueue, body: str) -> None:
    url = make_queue()
    sent = api("SendMessage", QueueUrl=url, MessageBody=body)
    assert set(sent) == {"MessageId", "MD5OfMessageBody"}
    assert sent["MD5OfMessageBody"] == md5(body)
    (message,) = receive(api, url)
    assert set(message) == {"MessageId", "ReceiptHandle", "MD5OfBody", "Body"}
    assert (message["Body"], message["MD5OfBody"], message["MessageId"]) == (body, md5(body), sent["MessageId"])
    assert receive(api, url) == []
    for _ in range(2):
        assert api("DeleteMessage", QueueUrl=url, ReceiptHandle=message["ReceiptHandle"]) == {}


def test_an_empty_receive_says_nothing(api: SqsHttp, make_queue: MakeQueue) -> None:
    answer = api.send("ReceiveMessage", {"QueueUrl": make_queue()})
    assert answer.body == b"{}" if api.form == "json" else b"<ReceiveMessageResult/>" in answer.body


VECTORS: list[tuple[dict[str, Any], str]] = [
    ({"Foo": string("Bar")}, "ae7155c6026991b6d54b11589678bf9c"),
    (
        {"Help.Me": string("Me"), "General": string("Kenobi"), "Hello": string("There")},
        "4c360f3fdafd970e05fae2f149d997f5",
    ),
    ({"Hello": string("There")}, "a311262e065454b75da111d535b8dacd"),
    (
        {"attr1": binary(b"traceparent\x1e00-774062d6c37081a5a0b9b5b88e30627c-2d2482211f6489da-01")},
        "8cbe4db156db8a94db8b801b7addb984",
    ),
    ({"MyAttribute": string("foobar")}, "adb59cd4678ea5a855436b949cd07ab6"),
]


@pytest.mark.parametrize(("attributes", "digest"), VECTORS, ids=range(len(VECTORS)))
def test_digests_of_attributes_are_those_of_aws(
    api: SqsHttp, make_queue: MakeQueue, attributes: dict[str, Any], digest: str
) -> None:
    url = make_queue()
    sent = api("SendMessage", QueueUrl=url, MessageBody="x", MessageAttributes=attributes)
    assert sent["MD5OfMessageAttributes"] == digest
    (message,) = receive(api, url, MessageAttributeNames=["All"], VisibilityTimeout=0)
    assert message["MD5OfMessageAttributes"] == digest
    assert set(message["MessageAttributes"]) == set(attributes)
    (message,) = receive(api, url, VisibilityTimeout=0)
    assert "MessageAttributes" not in message
    assert "MD5OfMessageAttributes" not in message


def test_types_and_values_of_attributes_come_back_exactly(api: SqsHttp, make_queue: MakeQueue) -> None:
    url = make_queue()
    given = {
        "number": string("1.50", "Number"),
        "labelled": string("x", "String.json"),
        "big": string("123456789012345678901234567890", "Number.int"),
        "bytes": binary(b"\x00\xff"),
        "image": binary(b"\x89PNG", "Binary.png"),
        "AWSTraceHeader": string("mine", "String.own"),
    }
    sent = api("SendMessage", QueueUrl=url, MessageBody="x", MessageAttributes=given)
    (message,) = receive(api, url, MessageAttributeNames=["All"])
    shown = {"bytes": {"DataType": "Binary", "BinaryValue": "AP8="}}
    shown["image"] = {"DataType": "Binary.png", "BinaryValue": "iVBORw=="}
    assert message["MessageAttributes"] == given | shown
    assert message["MD5OfMessageAttributes"] == sent["MD5OfMessageAttributes"]


@pytest.mark.parametrize(
    ("names", "found"),
    [
        ([], []),
        (["All"], ["Foo.a", "Foo.b", "Hello"]),
        ([".*"], ["Foo.a", "Foo.b", "Hello"]),
        (["*"], ["Foo.a", "Foo.b", "Hello"]),
        (["Foo.*"], ["Foo.a", "Foo.b"]),
        (["Hello", "Foo.b", "unknown", "illegal name!"], ["Foo.b", "Hello"]),
        (["hello"], []),
    ],
)
def test_attributes_are_chosen_by_name(api: SqsHttp, make_queue: MakeQueue, names: list[str], found: list[str]) -> None:
    url = make_queue()
    given = {name: string(name) for name in ("Foo.a", "Foo.b", "Hello")}
    api("SendMessage", QueueUrl=url, MessageBody="x", MessageAttributes=given)
    (message,) = receive(api, url, MessageAttributeNames=names)
    assert sorted(message.get("MessageAttributes", {})) == found


def test_system_attributes(api: SqsHttp, make_queue: MakeQueue) -> None:
    url = make_queue()
    before_ms = time.time_ns() // 1_000_000
    trace = {"AWSTraceHeader": string("Root=1-5759e988-bd862e3fe1be46a994272793")}
    sent = api("SendMessage", QueueUrl=url, MessageBody="x", MessageSystemAttributes=trace, MessageGroupId="tenant")
    assert "MD5OfMessageSystemAttributes" in sent
    (message,) = receive(
        api, url, AttributeNames=["SenderId"], MessageSystemAttributeNames=["AWSTraceHeader"], VisibilityTimeout=0
    )
    assert message["Attributes"] == {
        "SenderId": "000000000000",
        "AWSTraceHeader": trace["AWSTraceHeader"]["StringValue"],
    }
    (message,) = receive(
        api, url, MessageSystemAttributeNames=["All"], MessageAttributeNames=["All"], VisibilityTimeout=0
    )
    shown = message["Attributes"]
    assert set(shown) == {
        "AWSTraceHeader",
        "ApproximateFirstReceiveTimestamp",
        "ApproximateReceiveCount",
        "MessageGroupId",
        "SenderId",
        "SentTimestamp",
    }
    assert shown["ApproximateReceiveCount"] == "2"
    assert shown["MessageGroupId"] == "tenant"
    assert before_ms - 5_000 <= int(shown["SentTimestamp"]) <= int(shown["ApproximateFirstReceiveTimestamp"])
    assert "MessageAttributes" not in message


def test_a_trace_of_the_request_becomes_one_of_the_message(
    node: NodeProcess, api: SqsHttp, make_queue: MakeQueue
) -> None:
    url = make_queue()
    traced = SqsHttp(node.sqs, api.form, {"X-Amzn-Trace-Id": "Root=1-2-3"})
    assert "MD5OfMessageSystemAttributes" not in traced("SendMessage", QueueUrl=url, MessageBody="x")
    (message,) = receive(api, url, AttributeNames=["All"])
    assert message["Attributes"]["AWSTraceHeader"] == "Root=1-2-3"


MISSING = "The request must contain the parameter MessageBody."
CHARACTERS = "InvalidMessageContents"
VALUE = "InvalidParameterValue"
DELAY = "Value 901 for parameter DelaySeconds is invalid. Reason: DelaySeconds must be >= 0 and <= 900."
GROUP = (
    "Value a b for parameter MessageGroupId is invalid. Reason: MessageGroupId can only include alphanumeric and "
    "punctuation characters. 1 to 128 in length."
)
SENDS: list[tuple[dict[str, Any], str, str | None]] = [
    ({}, "MissingParameter", MISSING),
    ({"MessageBody": ""}, "MissingParameter", MISSING),
    ({"MessageBody": "\x00"}, CHARACTERS, None),
    ({"MessageBody": "a\x0bb"}, CHARACTERS, None),
    ({"MessageBody": "\ufffe"}, CHARACTERS, None),
    (
        {"MessageBody": "x" * 2_000},
        VALUE,
        "One or more parameters are invalid. Reason: Message must be shorter than 1024 bytes.",
    ),
    ({"MessageBody": "x" * 1_000, "MessageAttributes": {"a": string("y" * 20)}}, VALUE, None),
    (
        {"MessageBody": "x", "DelaySeconds": 901},
        VALUE,
        "Value 901 for parameter DelaySeconds is invalid. Reason: DelaySeconds must be >= 0 and <= 900.",
    ),
    ({"MessageBody": "x", "DelaySeconds": -1}, VALUE, None),
    ({"MessageBody": "x", "MessageDeduplicationId": "a"}, VALUE, None),
    (
        {"MessageBody": "x", "MessageGroupId": "a b"},
        VALUE,
        GROUP,
    ),
    ({"MessageBody": "x", "MessageGroupId": ""}, VALUE, None),
    ({"MessageBody": "x", "MessageGroupId": "g" * 129}, VALUE, None),
    (
        {"MessageBody": "x", "MessageAttributes": {"a": string("")}},
        VALUE,
        "Message (user) attribute 'a' must contain a non-empty value of type 'String'.",
    ),
    ({"MessageBody": "x", "MessageAttributes": {"a": binary(b"")}}, VALUE, None),
    ({"MessageBody": "x", "MessageAttributes": {"a": {"StringValue": "b"}}}, VALUE, None),
    ({"MessageBody": "x", "MessageAttributes": {"a": string("b", "Text")}}, VALUE, None),
    ({"MessageBody": "x", "MessageAttributes": {"a": string("b", "Stringx")}}, VALUE, None),
    ({"MessageBody": "x", "MessageAttributes": {"a": string("\x01")}}, VALUE, None),
    ({"MessageBody": "x", "MessageAttributes": {"AWS.a": string("b")}}, VALUE, None),
    ({"MessageBody": "x", "MessageAttributes": {"aMaZon.a": string("b")}}, VALUE, None),
    ({"MessageBody": "x", "MessageAttributes": {".a": string("b")}}, VALUE, None),
    ({"MessageBody": "x", "MessageAttributes": {"a.": string("b")}}, VALUE, None),
    ({"MessageBody": "x", "MessageAttributes": {"a b": string("b")}}, VALUE, None),
    ({"MessageBody": "x", "MessageAttributes": {str(number): string("b") for number in range(11)}}, VALUE, None),
    ({"MessageBody": "x", "MessageSystemAttributes": {"Other": string("b")}}, VALUE, None),
    ({"MessageBody": "x", "MessageSystemAttributes": {"AWSTraceHeader": string("1", "Number")}}, VALUE, None),
]


@pytest.mark.parametrize(("given", "code", "text"), SENDS, ids=range(len(SENDS)))
def test_messages_that_are_refused(
    api: SqsHttp, make_queue: MakeQueue, given: dict[str, Any], code: str, text: str | None
) -> None:
    url = make_queue(MaximumMessageSize="1024")
    error = failure_of(api, "SendMessage", QueueUrl=url, **given)
    assert (error.status, error.code) == (400, code)
    assert text is None or error.text == text
    assert receive(api, url) == []
    if "MessageBody" in given:
        batch = api(
            "SendMessageBatch", QueueUrl=url, Entries=[{"Id": "bad", **given}, {"Id": "good", "MessageBody": "x"}]
        )
        (failed,), (sent,) = batch["Failed"], batch["Successful"]
        assert (failed["Id"], failed["SenderFault"], failed["Code"], failed["Message"]) == (
            "bad",
            "true",
            code,
            error.text,
        )
        assert (sent["Id"], sent["MD5OfMessageBody"]) == ("good", md5("x"))


def test_a_message_may_be_as_long_as_the_queue_says(api: SqsHttp, make_queue: MakeQueue) -> None:
    url = make_queue(MaximumMessageSize="1024")
    given = {"abc": string("y" * 11)}
    api("SendMessage", QueueUrl=url, MessageBody="é" * 502, MessageAttributes=given)
    longer = failure_of(api, "SendMessage", QueueUrl=url, MessageBody="é" * 502 + "x", MessageAttributes=given)
    assert longer.code == VALUE


def test_the_largest_message(api: SqsHttp, make_queue: MakeQueue) -> None:
    url = make_queue()
    body = "é" * (512 * 1024)
    sent = api("SendMessage", QueueUrl=url, MessageBody=body)
    (message,) = receive(api, url)
    assert message["MD5OfBody"] == sent["MD5OfMessageBody"] == md5(message["Body"]) == md5(body)
    assert failure_of(api, "SendMessage", QueueUrl=url, MessageBody=body + "x").code == VALUE


def test_delays(api: SqsHttp, make_queue: MakeQueue) -> None:
    url = make_queue(DelaySeconds="900")
    api("SendMessage", QueueUrl=url, MessageBody="later")
    api("SendMessage", QueueUrl=url, MessageBody="now", DelaySeconds=0)
    api("SendMessage", QueueUrl=url, MessageBody="soon", DelaySeconds=1)
    counts = api("GetQueueAttributes", QueueUrl=url, AttributeNames=["All"])["Attributes"]
    assert counts["ApproximateNumberOfMessagesDelayed"] == "2"
    assert [one["Body"] for one in receive(api, url, MaxNumberOfMessages=10)] == ["now"]
    assert [one["Body"] for one in receive(api, url, WaitTimeSeconds=20)] == ["soon"]


# --- receives ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (
            {"MaxNumberOfMessages": 11},
            "Value 11 for parameter MaxNumberOfMessages is invalid. Reason: Must be between 1 and 10, if provided.",
        ),
        ({"MaxNumberOfMessages": 0}, None),
        (
            {"WaitTimeSeconds": 21},
            "Value 21 for parameter WaitTimeSeconds is invalid. Reason: Must be >= 0 and <= 20, if provided.",
        ),
        ({"WaitTimeSeconds": -1}, None),
        ({"VisibilityTimeout": 43201}, None),
        ({"VisibilityTimeout": -1}, None),
        ({"ReceiveRequestAttemptId": "a b"}, None),
        ({"ReceiveRequestAttemptId": "a" * 129}, None),
    ],
)
def test_receives_that_are_refused(
    api: SqsHttp, make_queue: MakeQueue, given: dict[str, Any], text: str | None
) -> None:
    error = failure_of(api, "ReceiveMessage", QueueUrl=make_queue(), **given)
    assert error.code == VALUE
    assert text is None or error.text == text


def test_a_send_wakes_the_receive_that_waits(api: SqsHttp, node: NodeProcess, make_queue: MakeQueue) -> None:
    url = make_queue(ReceiveMessageWaitTimeSeconds="20")
    found: list[Any] = []
    waiting = threading.Thread(target=lambda: found.extend(receive(api, url, MaxNumberOfMessages=10)))
    waiting.start()
    wait_for_receives(node, url, 1)
    api("SendMessage", QueueUrl=url, MessageBody="x")
    waiting.join(30)
    assert [one["Body"] for one in found] == ["x"]


def test_a_receive_ends_when_its_queue_is_deleted(api: SqsHttp, node: NodeProcess, make_queue: MakeQueue) -> None:
    url = make_queue()
    answers: list[Any] = []
    waiting = threading.Thread(
        target=lambda: answers.append(failure_of(api, "ReceiveMessage", QueueUrl=url, WaitTimeSeconds=20))
    )
    waiting.start()
    wait_for_receives(node, url, 1)
    api("DeleteQueue", QueueUrl=url)
    waiting.join(30)
    assert answers[0].code == "AWS.SimpleQueueService.NonExistentQueue"


def test_what_is_hidden_is_counted(api: SqsHttp, make_queue: MakeQueue) -> None:
    url = make_queue()
    for body in "abc":
        api("SendMessage", QueueUrl=url, MessageBody=body)
    receive(api, url, MaxNumberOfMessages=2)

    def counts() -> list[int]:
        found = api("GetQueueAttributes", QueueUrl=url, AttributeNames=["All"])["Attributes"]
        return [int(found[f"ApproximateNumberOfMessages{kind}"]) for kind in ("", "NotVisible", "Delayed")]

    assert counts() == [1, 2, 0]
    receive(api, url, MaxNumberOfMessages=1, VisibilityTimeout=1)
    assert counts() == [0, 3, 0]
    wait_for(lambda: counts() == [1, 2, 0], "the end of one timeout")


# --- receipts ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("handle", ["garbage", "x" * 2000, "AA==", "😀", "AcL2df4AAAAAAAAAAwAAAAJrChh5"])
def test_receipts_that_are_refused(api: SqsHttp, make_queue: MakeQueue, handle: str) -> None:
    url = make_queue()
    text = f'The input receipt handle "{handle[:1024]}" is not a valid receipt handle.'
    actions: list[tuple[str, dict[str, Any]]] = [("DeleteMessage", {})]
    actions.append(("ChangeMessageVisibility", {"VisibilityTimeout": 1}))
    for action, more in actions:
        error = failure_of(api, action, QueueUrl=url, ReceiptHandle=handle, **more)
        assert (error.status, error.code, error.text) == (400, "ReceiptHandleIsInvalid", text)
        batch = api(f"{action}Batch", QueueUrl=url, Entries=[{"Id": "a", "ReceiptHandle": handle, **more}])
        assert [(one["Id"], one["Code"]) for one in batch["Failed"]] == [("a", "ReceiptHandleIsInvalid")]


def test_a_receipt_of_another_queue_is_refused(api: SqsHttp, make_queue: MakeQueue) -> None:
    url, other = make_queue(), make_queue()
    api("SendMessage", QueueUrl=url, MessageBody="x")
    (message,) = receive(api, url)
    error = failure_of(api, "DeleteMessage", QueueUrl=other, ReceiptHandle=message["ReceiptHandle"])
    assert error.code == "ReceiptHandleIsInvalid"


def test_a_late_consumer_deletes_what_nobody_else_received(api: SqsHttp, make_queue: MakeQueue) -> None:
    url = make_queue()
    api("SendMessage", QueueUrl=url, MessageBody="x")
    (first,) = receive(api, url, VisibilityTimeout=0)
    assert api("DeleteMessage", QueueUrl=url, ReceiptHandle=first["ReceiptHandle"]) == {}
    assert receive(api, url) == []


def test_an_old_receipt_acts_on_nothing(api: SqsHttp, make_queue: MakeQueue) -> None:
    url = make_queue()
    api("SendMessage", QueueUrl=url, MessageBody="x")
    (first,) = receive(api, url, VisibilityTimeout=0)
    (second,) = receive(api, url)
    assert first["MessageId"] == second["MessageId"]
    old = first["ReceiptHandle"]
    assert api("DeleteMessage", QueueUrl=url, ReceiptHandle=old) == {}
    error = failure_of(api, "ChangeMessageVisibility", QueueUrl=url, ReceiptHandle=old, VisibilityTimeout=0)
    assert (error.code, error.text) == (VALUE, f"Value {old} for parameter ReceiptHandle is invalid. {GONE}")
    assert receive(api, url) == []
    change = {"QueueUrl": url, "ReceiptHandle": second["ReceiptHandle"]}
    assert api("ChangeMessageVisibility", **change, VisibilityTimeout=0) == {}
    (third,) = receive(api, url, AttributeNames=["All"])
    assert third["Attributes"]["ApproximateReceiveCount"] == "3"
    assert api("DeleteMessage", QueueUrl=url, ReceiptHandle=third["ReceiptHandle"]) == {}
    assert failure_of(api, "ChangeMessageVisibility", **change, VisibilityTimeout=1).text.endswith(GONE)


def test_a_receipt_outlives_changes_of_visibility(api: SqsHttp, make_queue: MakeQueue) -> None:
    url = make_queue(VisibilityTimeout="1")
    api("SendMessage", QueueUrl=url, MessageBody="x")
    (message,) = receive(api, url)
    change = {"QueueUrl": url, "ReceiptHandle": message["ReceiptHandle"]}
    for seconds in (43_200, 10, 100):
        assert api("ChangeMessageVisibility", **change, VisibilityTimeout=seconds) == {}
    time.sleep(1.2)
    assert receive(api, url) == []
    assert api("DeleteMessage", **change) == {}
    assert api("GetQueueAttributes", QueueUrl=url, AttributeNames=["ApproximateNumberOfMessagesNotVisible"])[
        "Attributes"
    ] == {"ApproximateNumberOfMessagesNotVisible": "0"}


def test_visibilities_that_are_refused(api: SqsHttp, make_queue: MakeQueue) -> None:
    url = make_queue()
    api("SendMessage", QueueUrl=url, MessageBody="x")
    (message,) = receive(api, url)
    change = {"QueueUrl": url, "ReceiptHandle": message["ReceiptHandle"]}
    for seconds in (-1, 43_201):
        assert failure_of(api, "ChangeMessageVisibility", **change, VisibilityTimeout=seconds).code == VALUE
    error = failure_of(api, "ChangeMessageVisibility", **change)
    assert error.code == "MissingParameter"
    assert failure_of(api, "DeleteMessage", QueueUrl=url).code == "MissingParameter"


def test_purging_takes_hidden_and_delayed_messages_too(api: SqsHttp, make_queue: MakeQueue) -> None:
    url = make_queue()
    for delay_s in (0, 0, 100):
        api("SendMessage", QueueUrl=url, MessageBody="x", DelaySeconds=delay_s)
    (message,) = receive(api, url)
    for _ in range(2):
        assert api("PurgeQueue", QueueUrl=url) == {}
    counts = api("GetQueueAttributes", QueueUrl=url, AttributeNames=["All"])["Attributes"]
    assert [value for name, value in counts.items() if name.startswith("Approximate")] == ["0"] * 3
    assert api("DeleteMessage", QueueUrl=url, ReceiptHandle=message["ReceiptHandle"]) == {}


# --- batches ----------------------------------------------------------------------------------------------------------

ENTRY: dict[str, dict[str, Any]] = {
    "SendMessageBatch": {"MessageBody": "x"},
    "DeleteMessageBatch": {"ReceiptHandle": "x"},
    "ChangeMessageVisibilityBatch": {"ReceiptHandle": "x", "VisibilityTimeout": 1},
}
PREFIX = "AWS.SimpleQueueService."


@pytest.mark.parametrize("action", ENTRY)
@pytest.mark.parametrize(
    ("ids", "code", "text"),
    [
        ([], "EmptyBatchRequest", None),
        (
            [str(number) for number in range(20)],
            "TooManyEntriesInBatchRequest",
            "Maximum number of entries per request are 10. You have sent 20.",
        ),
        (["a b"], "InvalidBatchEntryId", None),
        (["a" * 81], "InvalidBatchEntryId", None),
        ([""], "InvalidBatchEntryId", None),
        (["a", "b", "a"], "BatchEntryIdsNotDistinct", "Id a repeated."),
    ],
)
def test_batches_that_are_refused(
    api: SqsHttp, make_queue: MakeQueue, action: str, ids: list[str], code: str, text: str | None
) -> None:
    url = make_queue()
    error = failure_of(api, action, QueueUrl=url, Entries=[{"Id": one, **ENTRY[action]} for one in ids])
    assert (error.status, error.code) == (400, PREFIX + code)
    assert text is None or error.text == text


def test_a_batch_is_stored_in_order_settled_and_hidden_entry_by_entry(api: SqsHttp, make_queue: MakeQueue) -> None:
    url = make_queue()
    entries: list[dict[str, Any]] = [{"Id": f"id-{number}", "MessageBody": str(number)} for number in range(10)]
    entries[3]["MessageAttributes"] = {"Foo": string("Bar")}
    sent = api("SendMessageBatch", QueueUrl=url, Entries=entries)["Successful"]
    assert [one["Id"] for one in sent] == [f"id-{number}" for number in range(10)]
    assert sent[3]["MD5OfMessageAttributes"] == VECTORS[0][1]
    messages = receive(api, url, MaxNumberOfMessages=10)
    assert [one["Body"] for one in messages] == [str(number) for number in range(10)]
    assert [one["MessageId"] for one in messages] == [one["MessageId"] for one in sent]
    handles = [one["ReceiptHandle"] for one in messages]
    changes = [{"Id": "a", "ReceiptHandle": handles[0], "VisibilityTimeout": 0}]
    changes.append({"Id": "b", "ReceiptHandle": handles[1], "VisibilityTimeout": 99_999})
    changed = api("ChangeMessageVisibilityBatch", QueueUrl=url, Entries=changes)
    assert changed["Successful"] == [{"Id": "a"}]
    assert [(one["Id"], one["Code"]) for one in changed["Failed"]] == [("b", VALUE)]
    assert [one["Body"] for one in receive(api, url, MaxNumberOfMessages=10)] == ["0"]
    gone = [{"Id": str(number), "ReceiptHandle": handles[number]} for number in range(1, 10)]
    deleted = api("DeleteMessageBatch", QueueUrl=url, Entries=[*gone, {"Id": "bad", "ReceiptHandle": "bad"}])
    assert deleted["Successful"] == [{"Id": str(number)} for number in range(1, 10)]
    assert [one["Id"] for one in deleted["Failed"]] == ["bad"]


def test_a_batch_is_limited_as_a_whole(api: SqsHttp, make_queue: MakeQueue) -> None:
    url = make_queue()
    entries = [{"Id": str(number), "MessageBody": "x" * 600_000} for number in range(2)]
    error = failure_of(api, "SendMessageBatch", QueueUrl=url, Entries=entries)
    assert error.code == PREFIX + "BatchRequestTooLong"
    assert error.text == "Batch requests cannot be longer than 1048576 bytes. You have sent 1200000 bytes."


# --- messages of other protocols --------------------------------------------------------------------------------------


def test_messages_of_other_clients_are_shown_as_text(api: SqsHttp, node: NodeProcess, make_queue: MakeQueue) -> None:
    url = make_queue()
    name, other = url.rpartition("/")[2], SqsHttp(node.http)
    pushes = [(b"plain", "text/plain"), (b"\xff\x00", "application/octet-stream"), (b"{}", "application/json")]
    for body, kind in pushes:
        assert other.raw("POST", f"/messages/{name}", body, {"Content-Type": kind}).status == 200
    messages = receive(api, url, MaxNumberOfMessages=10, MessageAttributeNames=["All"])
    assert [one["Body"] for one in messages] == ["plain", "/wA=", "{}"]
    shown = [
        {key: one["StringValue"] for key, one in message.get("MessageAttributes", {}).items()} for message in messages
    ]
    assert shown == [
        {},
        {"lmq.encoding": "base64", "lmq.content_type": "application/octet-stream"},
        {"lmq.content_type": "application/json"},
    ]
    for message in messages:
        assert message["MD5OfBody"] == md5(message["Body"])


def test_other_clients_see_the_text_and_the_attributes(api: SqsHttp, node: NodeProcess, make_queue: MakeQueue) -> None:
    url = make_queue()
    name, other = url.rpartition("/")[2], SqsHttp(node.http)
    api("SendMessage", QueueUrl=url, MessageBody="héllo", MessageAttributes={"Foo": string("Bar")})
    answer = other.raw("POST", f"/v1/queues/{name}/pull", b"{}", {"Content-Type": "application/json"})
    (message,) = json.loads(answer.body)["messages"]
    assert message["content"] == "héllo"
    assert message["content_type"] == "text/plain; charset=utf-8"
    assert message["attributes"]["Foo"] == "Bar"
