"""Strangers, pages of web sites, and huge, slow, half or odd requests at the SQS port."""

from __future__ import annotations

import json
import socket
import time
from typing import Any

import pytest

from .cluster import NodeProcess, wait_for
from .raw_http import Connection
from .sqs_fixtures import MakeQueue, api, make_queue, wait_for_receives
from .sqs_http import SqsHttp, SqsRefusedError

__all__ = ["api", "make_queue"]

NO_BASE64 = (
    b"Action=SendMessage&MessageAttribute.1.Name=a&MessageAttribute.1.Value.DataType=Binary"
    b"&MessageAttribute.1.Value.BinaryValue=*&QueueUrl=q&MessageBody=x"
)
JSON = {"Content-Type": "application/x-amz-json-1.0"}
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
MIB = 1024 * 1024


def target(action: str) -> dict[str, str]:
    return {**JSON, "X-Amz-Target": f"AmazonSQS.{action}"}


@pytest.fixture
def raw(node: NodeProcess) -> SqsHttp:
    return SqsHttp(node.sqs)


def still_serves(node: NodeProcess) -> None:
    assert "QueueUrl" in SqsHttp(node.sqs)("CreateQueue", QueueName="still-serving")


# --- what is no request -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "path", "headers", "body"),
    [
        ("GET", "/", {}, b""),
        ("GET", "/?action=ListQueues", {}, b""),
        ("GET", "/000000000000/q", {}, b""),
        ("POST", "/", {}, b"{}"),
        ("POST", "/", FORM, b""),
        ("POST", "/", FORM, b"Version=2012-11-05"),
        ("POST", "/", JSON, b"{}"),
        ("POST", "/", {"X-Amz-Target": "AmazonSQS.ListQueues"}, b"{}"),
        ("POST", "/", {"X-Amz-Target": "AmazonSNS.Publish", **JSON}, b"{}"),
        ("POST", "/", {"X-Amz-Target": "AmazonSQS.ListQueues", "Content-Type": "application/json"}, b"{}"),
        ("PUT", "/", target("ListQueues"), b"{}"),
        ("DELETE", "/000000000000/q", {}, b""),
        ("OPTIONS", "/", {"Access-Control-Request-Method": "POST"}, b""),
    ],
)
def test_what_has_neither_form_is_not_found(
    raw: SqsHttp, method: str, path: str, headers: dict[str, str], body: bytes
) -> None:
    answer = raw.raw(method, path, body, headers)
    assert (answer.status, answer.body) == (404, b"<UnknownOperationException/>")
    assert "x-amzn-requestid" in answer.headers


def test_unknown_actions(raw: SqsHttp) -> None:
    answer = raw.raw("POST", "/", b"{}", target("FooBar"))
    assert (answer.status, json.loads(answer.body)["__type"]) == (400, "com.amazonaws.sqs#UnknownOperationException")
    answer = raw.raw("POST", "/", b"Action=FooBar", FORM)
    assert answer.status == 400
    assert (
        b"<Code>InvalidAction</Code><Message>The action FooBar is not valid for this endpoint.</Message>" in answer.body
    )


def test_the_url_of_a_queue_names_it_in_a_query(raw: SqsHttp, queue_name: str) -> None:
    name = queue_name[-60:]
    raw("CreateQueue", QueueName=name)
    path = f"/000000000000/{name}"
    for method, sent in (("GET", "?Action=GetQueueAttributes&AttributeName=QueueArn"), ("POST", "")):
        answer = raw.raw(method, path + sent, b"Action=GetQueueAttributes&AttributeName.1=QueueArn", FORM)
        assert answer.status == 200
        assert f":{name}</Value>".encode() in answer.body
    for action in ("ListQueues", "CreateQueue&QueueName=x"):
        answer = raw.raw("POST", path, f"Action={action}".encode(), FORM)
        assert b"<Code>InvalidAction</Code>" in answer.body
    answer = raw.raw("POST", "/000000000000/no-such-queue", f"Action=GetQueueUrl&QueueName={name}".encode(), FORM)
    assert answer.status == 200
    other = f"Action=SendMessage&MessageBody=x&QueueUrl={name}".encode()
    assert raw.raw("POST", "/000000000000/no-such-queue", other, FORM).status == 200


def test_json_is_taken_at_any_path_with_any_charset(raw: SqsHttp) -> None:
    headers = target("ListQueues") | {"Content-Type": "application/x-amz-json-1.0; charset=utf-8"}
    for path in ("/", "/000000000000/q", "/a%zz+b"):
        assert raw.raw("POST", path, b"", headers).status == 200


# --- malformed parameters ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        b"[]",
        b"null",
        b"x",
        b"{",
        b'{"QueueUrl": 1}',
        b'{"QueueUrl": "q", "MessageBody": {}}',
        b'{"QueueUrl": "q", "MessageBody": "x", "DelaySeconds": "x"}',
        b'{"QueueUrl": "q", "MessageBody": "x", "DelaySeconds": 1.5}',
        b'{"QueueUrl": "q", "MessageBody": "x", "DelaySeconds": true}',
        b'{"QueueUrl": "q", "MessageBody": "x", "MessageAttributes": []}',
        b'{"QueueUrl": "q", "MessageBody": "x", "MessageAttributes": {"a": "b"}}',
        b'{"QueueUrl": "q", "MessageBody": "x", "MessageAttributes": {"a": {"DataType": "Binary", "BinaryValue": "*"}}}',
        b'{"QueueUrl": "q", "MessageBody": "\\ud800"}',
        b'{"QueueUrl": "q", "MessageBody": "\xff"}',
        b"[" * 100_000,
        b'{"a":' * 50_000,
        b'{"QueueUrl": "q", "MessageBody": "' + b"x" * MIB,
    ],
    ids=range(17),
)
def test_malformed_json_is_refused(raw: SqsHttp, node: NodeProcess, body: bytes) -> None:
    answer = raw.raw("POST", "/", body, target("SendMessage"))
    assert answer.status == 400
    assert json.loads(answer.body)["__type"] == "com.amazonaws.sqs#SerializationException"
    still_serves(node)


def test_json_with_too_many_values_is_refused(raw: SqsHttp, node: NodeProcess) -> None:
    for value in (b"{}," * MIB + b"{}]", b"[" * MIB):
        answer = raw.raw("POST", "/", b'{"QueueUrl": "q", "Entries": [' + value + b"}", target("SendMessageBatch"))
        assert answer.status == 400
    still_serves(node)


@pytest.mark.parametrize(
    "form",
    [
        b"Action=SendMessage&QueueUrl=%ff&MessageBody=x",
        b"Action=SendMessage&MessageBody=%ff",
        b"Action=SendMessage&" + b"&".join(b"a.%d=1" % number for number in range(300_000)),
        b"Action=SendMessage&" + b"a." * 100_000 + b"=1",
        b"Action=SendMessage&DelaySeconds=x&QueueUrl=q&MessageBody=x",
        b"Action=SendMessage&QueueUrl=q&MessageBody=" + b"%41" * (MIB + 1),
        b"Action=SendMessage&MessageAttribute.1.Value=x&MessageAttribute.1.Value.DataType=String&QueueUrl=q&MessageBody=x",
        NO_BASE64,
        b"Action=SendMessageBatch&QueueUrl=q&SendMessageBatchRequestEntry.1=x",
        b"Action=SendMessageBatch&QueueUrl=q&Entries=",
        b"Action=DeleteMessageBatch&QueueUrl=q&DeleteMessageBatchRequestEntry.99999999999.Id=x",
        b"Action=&&&=&=x&%&%4&+",
    ],
    ids=range(12),
)
def test_malformed_forms_are_refused(raw: SqsHttp, node: NodeProcess, form: bytes) -> None:
    raw("CreateQueue", QueueName="q")
    began_s = time.monotonic()
    answer = raw.raw("POST", "/", form, FORM)
    assert answer.status == 400
    assert answer.body.startswith(b'<?xml version="1.0"?><ErrorResponse')
    assert time.monotonic() - began_s < 20
    still_serves(node)


def test_lists_in_a_query_may_have_holes_and_no_numbers(raw: SqsHttp) -> None:
    raw("CreateQueue", QueueName="q")
    for names in ("AttributeName.7=DelaySeconds&AttributeName.3=QueueArn", "AttributeName=DelaySeconds"):
        answer = raw.raw("POST", "/", f"Action=GetQueueAttributes&QueueUrl=q&{names}".encode(), FORM)
        assert b"<Attribute><Name>DelaySeconds</Name><Value>0</Value></Attribute>" in answer.body
    form = b"Action=SetQueueAttributes&QueueUrl=q&Attribute.Name=DelaySeconds&Attribute.Value=0"
    assert raw.raw("POST", "/", form, FORM).status == 200


def test_numbers_may_be_texts_in_json(raw: SqsHttp) -> None:
    raw("CreateQueue", QueueName="q")
    body = b'{"QueueUrl": "q", "MaxNumberOfMessages": "1", "WaitTimeSeconds": null, "Unknown": [1]}'
    assert raw.raw("POST", "/", body, target("ReceiveMessage")).status == 200


# --- size and time ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("headers", [target("SendMessage"), FORM], ids=["json", "query"])
def test_a_body_above_the_limit_is_refused_before_it_is_sent(node: NodeProcess, headers: dict[str, str]) -> None:
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    with Connection(node.sqs) as connection:
        connection.send(f"POST / HTTP/1.1\r\nHost: localhost\r\n{lines}Content-Length: {7 * MIB}\r\n\r\n".encode())
        answer = connection.read()
    assert answer.status == 400
    assert answer["connection"] == b"close"


def test_a_legal_message_in_its_longest_form_is_taken(raw: SqsHttp) -> None:
    url = raw("CreateQueue", QueueName="longest")["QueueUrl"]
    body = b'{"QueueUrl": "longest", "MessageBody": "' + b"\\u0041" * MIB + b'"}'
    assert raw.raw("POST", "/", body, target("SendMessage")).status == 200
    form = b"Action=SendMessage&QueueUrl=longest&MessageBody=" + b"%C3%A9" * (MIB // 2)
    assert raw.raw("POST", "/", form, FORM).status == 200
    messages = raw("ReceiveMessage", QueueUrl=url, MaxNumberOfMessages=10)["Messages"]
    assert [one["Body"] == text for one, text in zip(messages, ("A" * MIB, "é" * (MIB // 2)), strict=True)] == [
        True
    ] * 2


def test_a_receive_takes_at_most_16_mib(raw: SqsHttp, queue_name: str) -> None:
    url = raw("CreateQueue", QueueName=queue_name[-60:])["QueueUrl"]
    for _ in range(10):
        raw("SendMessage", QueueUrl=url, MessageBody="x" * MIB)
    assert len(raw("ReceiveMessage", QueueUrl=url, MaxNumberOfMessages=10)["Messages"]) == 10


def test_half_a_request_changes_nothing(node: NodeProcess, raw: SqsHttp, queue_name: str) -> None:
    name = queue_name[-60:]
    raw("CreateQueue", QueueName=name)
    body = json.dumps({"QueueUrl": name, "MessageBody": "x"}).encode()
    lines = "".join(f"{key}: {value}\r\n" for key, value in target("SendMessage").items())
    head = f"POST / HTTP/1.1\r\nHost: localhost\r\n{lines}Content-Length: {len(body)}\r\n\r\n".encode()
    for end in (len(head) // 2, len(head), len(head) + len(body) // 2):
        with Connection(node.sqs) as connection:
            connection.send((head + body)[:end])
    still_serves(node)
    assert "Messages" not in raw("ReceiveMessage", QueueUrl=name)


def test_the_connection_of_a_client_is_kept(node: NodeProcess) -> None:
    """The HTTP port closes idle connections after 5 s."""
    lines = "".join(f"{key}: {value}\r\n" for key, value in target("ListQueues").items())
    request = f"POST / HTTP/1.1\r\nHost: localhost\r\n{lines}Content-Length: 2\r\n\r\n{{}}".encode()
    with Connection(node.sqs) as connection, socket.create_connection(_address(node)) as stranger:
        connection.send(request)
        assert connection.read().status == 200
        stranger.settimeout(20)
        assert stranger.recv(1) == b"", "the connection of a stranger is closed"
        time.sleep(1)
        connection.send(request)
        assert connection.read().status == 200


def _address(node: NodeProcess) -> tuple[str, int]:
    host, _colon, port = node.sqs.rpartition(":")
    return host, int(port)


def test_messages_on_their_way_to_a_client_that_hangs_up_come_back_uncounted(
    api: SqsHttp, node: NodeProcess, make_queue: MakeQueue
) -> None:
    url = make_queue()
    lines = "".join(f"{key}: {value}\r\n" for key, value in target("ReceiveMessage").items())
    body = json.dumps({"QueueUrl": url, "WaitTimeSeconds": 20})
    request = f"POST / HTTP/1.1\r\nHost: localhost\r\n{lines}Content-Length: {len(body)}\r\n\r\n{body}".encode()
    connections = [socket.create_connection(_address(node)) for _ in range(5)]
    for one in connections:
        one.sendall(request)
    wait_for_receives(node, url, len(connections))
    for one in connections:
        one.close()
    api("SendMessage", QueueUrl=url, MessageBody="x")

    def found() -> Any:
        return api("ReceiveMessage", QueueUrl=url, AttributeNames=["ApproximateReceiveCount"]).get("Messages")

    (message,) = wait_for(found, "the message")
    assert message["Attributes"]["ApproximateReceiveCount"] == "1"


# --- web pages --------------------------------------------------------------------------------------------------------

PAGES = [
    ({"Host": "evil.example"}, 421),
    ({"Origin": "http://evil.example"}, 403),
    ({"Origin": "null"}, 403),
    ({"Sec-Fetch-Site": "cross-site"}, 403),
    ({"Sec-Fetch-Site": "same-site"}, 403),
]


@pytest.mark.parametrize(("headers", "status"), PAGES, ids=range(len(PAGES)))
@pytest.mark.parametrize("form", ["json", "query"])
def test_a_page_of_another_site_can_do_nothing(
    node: NodeProcess, queue_name: str, form: str, headers: dict[str, str], status: int
) -> None:
    page = SqsHttp(node.sqs, form, headers)
    with pytest.raises(SqsRefusedError) as caught:
        page("CreateQueue", QueueName=queue_name[-60:])
    assert (caught.value.status, caught.value.code) == (status, "AccessDenied")
    answer = page.raw("GET", f"/?Action=CreateQueue&QueueName={queue_name[-60:]}", headers=headers)
    assert answer.status == status
    with pytest.raises(SqsRefusedError):
        SqsHttp(node.sqs)("GetQueueUrl", QueueName=queue_name[-60:])


def test_the_node_answers_for_its_own_names(node: NodeProcess) -> None:
    port = node.sqs.rpartition(":")[2]
    for host in (f"localhost:{port}", "127.0.0.1", f"[::1]:{port}"):
        page = SqsHttp(node.sqs, headers={"Host": host})
        assert page("CreateQueue", QueueName="named")["QueueUrl"] == f"http://{host}/000000000000/named"
