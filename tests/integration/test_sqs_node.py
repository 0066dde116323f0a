"""The SQS port as a part of a node: its options, metrics, log of requests, and its end."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from .cluster import NodeProcess, fetch, wait_for
from .sqs_fixtures import failure_of, wait_for_receives
from .sqs_http import SqsHttp

ACCOUNT = "123456789012"


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A node whose options are not the usual ones."""
    arguments = (
        *("--sqs-account", ACCOUNT, "--sqs-region", "eu-north-1", "--sqs-url", "https://queues.example.org"),
        *("--sqs-limits", "relaxed", "--sqs-ignore", "policy,encryption", "--request-log", "on"),
    )
    with NodeProcess(tmp_path_factory.mktemp("sqs"), arguments=arguments) as node:
        yield node


@pytest.fixture(params=["json", "query"])
def api(request: pytest.FixtureRequest, other: NodeProcess) -> SqsHttp:
    return SqsHttp(other.sqs, request.param)


def attributes_of(api: SqsHttp, name: str) -> dict[str, str]:
    found: dict[str, str] = api("GetQueueAttributes", QueueUrl=name, AttributeNames=["All"])["Attributes"]
    return found


def test_urls_and_arns_follow_the_options(api: SqsHttp, queue_name: str) -> None:
    name = queue_name[-60:]
    url = api("CreateQueue", QueueName=name)["QueueUrl"]
    assert url == f"https://queues.example.org/{ACCOUNT}/{name}"
    assert attributes_of(api, url)["QueueArn"] == f"arn:aws:sqs:eu-north-1:{ACCOUNT}:{name}"
    api("SendMessage", QueueUrl=url, MessageBody="x")
    (message,) = api("ReceiveMessage", QueueUrl=url, AttributeNames=["SenderId"])["Messages"]
    assert message["Attributes"] == {"SenderId": ACCOUNT}


def test_limits_of_the_cluster(api: SqsHttp, queue_name: str) -> None:
    name = queue_name[-60:]
    given = {"VisibilityTimeout": "100000", "MessageRetentionPeriod": "1", "MaximumMessageSize": "5000000"}
    api("CreateQueue", QueueName=name, Attributes={**given, "MessageRetentionPeriod": "100000000"})
    entries = [{"Id": str(number), "MessageBody": "x", "DelaySeconds": 0} for number in range(100)]
    assert len(api("SendMessageBatch", QueueUrl=name, Entries=entries)["Successful"]) == 100
    messages = api("ReceiveMessage", QueueUrl=name, MaxNumberOfMessages=1000)["Messages"]
    assert len(messages) == 100
    handle = messages[0]["ReceiptHandle"]
    api("ChangeMessageVisibility", QueueUrl=name, ReceiptHandle=handle, VisibilityTimeout=1_000_000)
    gone = [{"Id": str(number), "ReceiptHandle": one["ReceiptHandle"]} for number, one in enumerate(messages)]
    assert len(api("DeleteMessageBatch", QueueUrl=name, Entries=gone)["Successful"]) == 100
    api("SendMessage", QueueUrl=name, MessageBody="x" * 4_000_000, DelaySeconds=1)
    assert len(api("ReceiveMessage", QueueUrl=name, WaitTimeSeconds=30)["Messages"][0]["Body"]) == 4_000_000


def test_attributes_without_effect_are_stored_and_shown(api: SqsHttp, other: NodeProcess, queue_name: str) -> None:
    name = queue_name[-60:]
    policy = json.dumps({"Statement": []})
    api("CreateQueue", QueueName=name, Attributes={"Policy": policy, "KmsMasterKeyId": "alias/aws/sqs"})
    found = attributes_of(api, name)
    assert (found["Policy"], found["KmsMasterKeyId"]) == (policy, "alias/aws/sqs")
    assert (found["KmsDataKeyReusePeriodSeconds"], found["SqsManagedSseEnabled"]) == ("300", "false")
    assert api("CreateQueue", QueueName=name, Attributes={"Policy": policy, "KmsMasterKeyId": "alias/aws/sqs"})
    both = {"KmsMasterKeyId": "x", "SqsManagedSseEnabled": "true"}
    assert failure_of(api, "SetQueueAttributes", QueueUrl=name, Attributes=both).code == "InvalidAttributeName"
    api("SetQueueAttributes", QueueUrl=name, Attributes={"SqsManagedSseEnabled": "true", "Policy": ""})
    found = attributes_of(api, name)
    assert found["SqsManagedSseEnabled"] == "true"
    assert {"KmsMasterKeyId", "KmsDataKeyReusePeriodSeconds", "Policy"}.isdisjoint(found)

    def logged() -> list[str]:
        return [line for line in other.log().splitlines() if "attribute without effect" in line and name in line]

    # The node writes its log in a thread.
    wait_for(lambda: len(logged()) >= 3, "a line for each attribute")
    assert len(logged()) == 3, "once for each attribute of the queue"


def test_permissions_are_stored_and_shown(api: SqsHttp, queue_name: str) -> None:
    name = queue_name[-60:]
    api("CreateQueue", QueueName=name)
    given = {"QueueUrl": name, "Label": "l", "AWSAccountIds": ["111122223333"], "Actions": ["SendMessage"]}
    assert api("AddPermission", **given) == {}
    policy = json.loads(attributes_of(api, name)["Policy"])
    arn = f"arn:aws:sqs:eu-north-1:{ACCOUNT}:{name}"
    assert policy["Id"] == f"{arn}/SQSDefaultPolicy"
    assert policy["Statement"] == [
        {
            "Sid": "l",
            "Effect": "Allow",
            "Principal": {"AWS": "arn:aws:iam::111122223333:root"},
            "Action": "SQS:SendMessage",
            "Resource": arn,
        }
    ]
    error = failure_of(api, "AddPermission", **given)
    assert error.text == "Value l for parameter Label is invalid. Reason: Already exists."
    many = [f"{number}" for number in range(8)]
    assert failure_of(api, "AddPermission", **{**given, "Label": "m", "Actions": many}).code == "OverLimit"
    assert (
        failure_of(api, "AddPermission", **{**given, "Label": "m", "Actions": ["Sing"]}).code == "InvalidParameterValue"
    )
    error = failure_of(api, "RemovePermission", QueueUrl=name, Label="none")
    assert error.text == "Value none for parameter Label is invalid. Reason: can't find label."
    assert api("RemovePermission", QueueUrl=name, Label="l") == {}
    assert "Policy" not in attributes_of(api, name)


def test_requests_are_counted_and_logged_by_action_and_code(other: NodeProcess) -> None:
    api = SqsHttp(other.sqs)
    api("ListQueues")
    failure_of(api, "GetQueueUrl", QueueName="no-such-queue")
    failure_of(api, "Sing" * 100)
    _status, page = fetch(other.http, "/metrics")
    for operation, code in (
        ("ListQueues", "200"),
        ("GetQueueUrl", "AWS.SimpleQueueService.NonExistentQueue"),
        ("unknown", "UnknownOperationException"),
    ):
        labels = f'protocol="sqs",operation="{operation}",code="{code}"'
        assert f"lmq_request_duration_seconds_count{{{labels}}}".encode() in page, labels

    def logged() -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in other.log().splitlines() if line.startswith("{")]
        return [line for line in lines if line["event"] == "request" and line["protocol"] == "sqs"]

    found = {(line["action"], line.get("code", "")) for line in wait_for(logged, "the log")}
    assert ("ListQueues", "") in found
    assert ("GetQueueUrl", "AWS.SimpleQueueService.NonExistentQueue") in found


def test_a_node_that_stops_answers_the_receives_that_wait(tmp_path: Path) -> None:
    with NodeProcess(tmp_path) as node:
        api = SqsHttp(node.sqs)
        api("CreateQueue", QueueName="q")
        answers: list[Any] = []
        waiting = [
            threading.Thread(
                target=lambda: answers.append(api.send("ReceiveMessage", {"QueueUrl": "q", "WaitTimeSeconds": 20}))
            )
            for _ in range(5)
        ]
        for one in waiting:
            one.start()
        wait_for_receives(node, "q", len(waiting))
        assert node.stop() == 0
        for one in waiting:
            one.join(30)
        assert [(answer.status, answer.body) for answer in answers] == [(200, b"{}")] * 5
