"""Queues over the SQS port, in both forms: creation, attributes, tags, lists, and the texts of errors."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from .cluster import NodeProcess
from .raw_http import call
from .sqs_fixtures import MakeQueue, api, failure_of, make_queue, redrive
from .sqs_http import SqsHttp

__all__ = ["api", "make_queue"]

NAME_TEXT = "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length"
SCOPE_TEXT = "You can specify the DeduplicationScope only when FifoQueue is set to true."


def name_of(url: str) -> str:
    return url.rpartition("/")[2]


def attributes_of(api: SqsHttp, url: str, *names: str) -> dict[str, str]:
    found: dict[str, str] = api("GetQueueAttributes", QueueUrl=url, AttributeNames=names or ["All"]).get(
        "Attributes", {}
    )
    return found


# --- names and existence ----------------------------------------------------------------------------------------------


def test_a_queue_is_created_found_and_deleted(api: SqsHttp, node: NodeProcess, queue_name: str) -> None:
    name = queue_name[-60:]
    url = api("CreateQueue", QueueName=name)["QueueUrl"]
    assert url == f"http://{node.sqs}/000000000000/{name}"
    assert api("CreateQueue", QueueName=name)["QueueUrl"] == url
    assert api("GetQueueUrl", QueueName=name, QueueOwnerAWSAccountId="111122223333")["QueueUrl"] == url
    assert api("DeleteQueue", QueueUrl=url) == {}
    for action, given in (("GetQueueUrl", {"QueueName": name}), ("DeleteQueue", {"QueueUrl": url})):
        error = failure_of(api, action, **given)
        assert (error.status, error.code) == (400, "AWS.SimpleQueueService.NonExistentQueue")
        text = "The specified queue does not exist" + (" for this wsdl version." if api.form == "query" else ".")
        assert error.text == text
    assert api("CreateQueue", QueueName=name)["QueueUrl"] == url


@pytest.mark.parametrize(
    ("name", "attributes"),
    [
        ("", {}),
        ("a b", {}),
        ("a.b", {}),
        ("ä", {}),
        ("x" * 81, {}),
        ("x.fifo", {}),
        ("x.fifo", {"FifoQueue": "false"}),
        ("x", {"FifoQueue": "true"}),
        ("x" * 76 + ".fifo", {"FifoQueue": "true"}),
        (".fifo", {"FifoQueue": "true"}),
    ],
)
def test_names_that_are_refused(api: SqsHttp, name: str, attributes: dict[str, str]) -> None:
    error = failure_of(api, "CreateQueue", QueueName=name, Attributes=attributes)
    assert (error.status, error.code, error.text) == (400, "InvalidParameterValue", NAME_TEXT)


def test_a_name_is_needed(api: SqsHttp) -> None:
    for action in ("CreateQueue", "GetQueueUrl"):
        error = failure_of(api, action)
        assert (error.code, error.text) == ("MissingParameter", "The request must contain the parameter QueueName.")


def test_no_other_action_creates_a_queue(api: SqsHttp) -> None:
    requests: list[tuple[str, dict[str, Any]]] = [
        ("SendMessage", {"MessageBody": "x"}),
        ("ReceiveMessage", {}),
        ("SendMessageBatch", {"Entries": [{"Id": "a", "MessageBody": "x"}]}),
        ("DeleteMessage", {"ReceiptHandle": "x"}),
        ("DeleteMessageBatch", {"Entries": [{"Id": "a", "ReceiptHandle": "x"}]}),
        ("ChangeMessageVisibility", {"ReceiptHandle": "x", "VisibilityTimeout": 1}),
        ("PurgeQueue", {}),
        ("SetQueueAttributes", {"Attributes": {"DelaySeconds": "1"}}),
        ("GetQueueAttributes", {"AttributeNames": ["All"]}),
        ("TagQueue", {"Tags": {"a": "b"}}),
        ("UntagQueue", {"TagKeys": ["a"]}),
        ("ListQueueTags", {}),
        ("ListDeadLetterSourceQueues", {}),
    ]
    for action, parameters in requests:
        error = failure_of(api, action, QueueUrl="no-such-queue", **parameters)
        assert error.code == "AWS.SimpleQueueService.NonExistentQueue", action


@pytest.mark.parametrize(
    "form_of",
    [
        lambda name: name,
        lambda name: f"/000000000000/{name}",
        lambda name: f"https://sqs.eu-west-1.amazonaws.com/111122223333/{name}",
        lambda name: f"http://other:1/x/y/{name}/",
        lambda name: "http://h/1/%" + format(ord(name[0]), "x") + name[1:],
    ],
)
def test_any_url_that_ends_with_the_name_is_taken(
    api: SqsHttp, make_queue: MakeQueue, form_of: Callable[[str], str]
) -> None:
    name = name_of(make_queue())
    assert attributes_of(api, form_of(name), "QueueArn") == {"QueueArn": f"arn:aws:sqs:us-east-1:000000000000:{name}"}


def test_a_queue_that_others_made_is_used_but_not_listed(api: SqsHttp, node: NodeProcess, queue_name: str) -> None:
    name = queue_name + ".a+b"
    quoted = name.replace("+", "%2B")
    other = SqsHttp(node.http)
    assert other.raw("POST", f"/messages/{quoted}", b"x").status == 200
    url = api("GetQueueUrl", QueueName=name)["QueueUrl"]
    assert url.endswith(quoted)
    found = attributes_of(api, url)
    assert found["ApproximateNumberOfMessages"] == "1"
    assert "MessageRetentionPeriod" not in found
    assert "FifoQueue" not in found
    assert api("ListQueues", QueueNamePrefix=queue_name) == {}
    assert api("ReceiveMessage", QueueUrl=url)["Messages"][0]["Body"] == "x"


# --- attributes -------------------------------------------------------------------------------------------------------


def test_attributes_of_a_new_queue(api: SqsHttp, make_queue: MakeQueue) -> None:
    found = attributes_of(api, make_queue())
    assert found.pop("CreatedTimestamp") == found.pop("LastModifiedTimestamp")
    assert found.pop("QueueArn").startswith("arn:aws:sqs:us-east-1:000000000000:")
    assert found == {
        "ApproximateNumberOfMessages": "0",
        "ApproximateNumberOfMessagesDelayed": "0",
        "ApproximateNumberOfMessagesNotVisible": "0",
        "DelaySeconds": "0",
        "MaximumMessageSize": "1048576",
        "MessageRetentionPeriod": "345600",
        "ReceiveMessageWaitTimeSeconds": "0",
        "SqsManagedSseEnabled": "false",
        "VisibilityTimeout": "30",
    }


def test_attributes_of_a_new_fifo_queue(api: SqsHttp, make_queue: MakeQueue) -> None:
    url = make_queue(".fifo", DeduplicationScope="messageGroup", FifoThroughputLimit="perMessageGroupId")
    found = attributes_of(
        api, url, "FifoQueue", "ContentBasedDeduplication", "DeduplicationScope", "FifoThroughputLimit", "RedrivePolicy"
    )
    assert found == {
        "FifoQueue": "true",
        "ContentBasedDeduplication": "false",
        "DeduplicationScope": "messageGroup",
        "FifoThroughputLimit": "perMessageGroupId",
    }


def test_only_known_attributes_can_be_asked_for(api: SqsHttp, make_queue: MakeQueue) -> None:
    url = make_queue()
    assert api("GetQueueAttributes", QueueUrl=url) == {}
    error = failure_of(api, "GetQueueAttributes", QueueUrl=url, AttributeNames=["Foobar"])
    assert (error.code, error.text) == ("InvalidAttributeName", "Unknown Attribute Foobar.")


CHANGES = {
    "VisibilityTimeout": ("0", "43200"),
    "DelaySeconds": ("0", "900"),
    "MaximumMessageSize": ("1024", "1048576"),
    "MessageRetentionPeriod": ("60", "1209600"),
    "ReceiveMessageWaitTimeSeconds": ("0", "20"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_numbers_are_set_within_their_ranges(api: SqsHttp, make_queue: MakeQueue, name: str) -> None:
    url = make_queue()
    low, high = CHANGES[name]
    for value in (low, high):
        assert api("SetQueueAttributes", QueueUrl=url, Attributes={name: value}) == {}
        assert attributes_of(api, url, name) == {name: value}
    for value in (str(int(low) - 1), str(int(high) + 1), "", "x", "1.5", "9" * 40, "٣"):
        error = failure_of(api, "SetQueueAttributes", QueueUrl=url, Attributes={name: value})
        assert (error.status, error.code, error.text) == (
            400,
            "InvalidAttributeValue",
            f"Invalid value for the parameter {name}.",
        )
    assert attributes_of(api, url, name) == {name: high}


@pytest.mark.parametrize(
    ("suffix", "given", "code", "text"),
    [
        ("", {"Foobar": "1"}, "InvalidAttributeName", "Unknown Attribute Foobar."),
        ("", {"QueueArn": "x"}, "InvalidAttributeName", "Unknown Attribute QueueArn."),
        ("", {"CreatedTimestamp": "1"}, "InvalidAttributeName", "Unknown Attribute CreatedTimestamp."),
        ("", {"ApproximateNumberOfMessages": "1"}, "InvalidAttributeName", None),
        ("", {"FifoQueue": "true"}, "InvalidAttributeName", "Unknown Attribute FifoQueue."),
        (
            "",
            {"ContentBasedDeduplication": "true"},
            "InvalidAttributeName",
            "Unknown Attribute ContentBasedDeduplication.",
        ),
        ("", {"DeduplicationScope": "queue"}, "InvalidAttributeName", SCOPE_TEXT),
        ("", {"FifoThroughputLimit": "perQueue"}, "InvalidAttributeName", SCOPE_TEXT),
        (".fifo", {"FifoQueue": "true"}, "InvalidAttributeName", "Unknown Attribute FifoQueue."),
        (
            ".fifo",
            {"FifoQueue": "false"},
            "InvalidAttributeValue",
            "Invalid value for the parameter FifoQueue. Reason: Modifying queue type is not supported.",
        ),
        (".fifo", {"FifoQueue": "x"}, "InvalidAttributeValue", "Invalid value for the parameter FifoQueue."),
        (".fifo", {"ContentBasedDeduplication": "x"}, "InvalidAttributeValue", None),
        (".fifo", {"DeduplicationScope": "x"}, "InvalidAttributeValue", None),
        (".fifo", {"FifoThroughputLimit": "x"}, "InvalidAttributeValue", None),
        (".fifo", {"FifoThroughputLimit": "perMessageGroupId"}, "InvalidAttributeValue", None),
        (
            "",
            {"RedriveAllowPolicy": "x"},
            "InvalidAttributeValue",
            "Invalid value for the parameter RedriveAllowPolicy.",
        ),
        ("", {"RedriveAllowPolicy": '{"redrivePermission":"x"}'}, "InvalidAttributeValue", None),
        ("", {"RedriveAllowPolicy": '{"redrivePermission":"byQueue"}'}, "InvalidAttributeValue", None),
        ("", {"RedrivePolicy": "x"}, "InvalidParameterValue", None),
        ("", {"RedrivePolicy": "{}"}, "InvalidParameterValue", None),
        ("", {"Policy": "{}"}, "AWS.SimpleQueueService.UnsupportedOperation", None),
        ("", {"KmsMasterKeyId": "alias/aws/sqs"}, "AWS.SimpleQueueService.UnsupportedOperation", None),
        ("", {"KmsDataKeyReusePeriodSeconds": "300"}, "AWS.SimpleQueueService.UnsupportedOperation", None),
        ("", {"SqsManagedSseEnabled": "true"}, "AWS.SimpleQueueService.UnsupportedOperation", None),
    ],
)
def test_attributes_that_are_refused(
    api: SqsHttp, make_queue: MakeQueue, suffix: str, given: dict[str, str], code: str, text: str | None
) -> None:
    url = make_queue(suffix)
    before = attributes_of(api, url)
    error = failure_of(api, "SetQueueAttributes", QueueUrl=url, Attributes={"DelaySeconds": "7", **given})
    assert error.code == code
    assert text is None or error.text == text
    assert attributes_of(api, url) == before


@pytest.mark.parametrize(
    "given", [{"Policy": ""}, {"KmsMasterKeyId": ""}, {"SqsManagedSseEnabled": "False"}, {"RedrivePolicy": ""}]
)
def test_attributes_that_promise_nothing_are_taken(api: SqsHttp, make_queue: MakeQueue, given: dict[str, str]) -> None:
    url = make_queue(**given)
    assert api("SetQueueAttributes", QueueUrl=url, Attributes=given) == {}


def test_a_queue_that_exists_is_compared_attribute_by_attribute(api: SqsHttp, make_queue: MakeQueue) -> None:
    url = make_queue(".fifo", ContentBasedDeduplication="true", VisibilityTimeout="11")
    name = name_of(url)
    fifo = {"FifoQueue": "true"}
    for given in ({}, fifo, {"FifoQueue": "True", "ContentBasedDeduplication": "True", "VisibilityTimeout": "11"}):
        assert api("CreateQueue", QueueName=name, Attributes=given)["QueueUrl"] == url
    for attribute, value in (
        ("VisibilityTimeout", "12"),
        ("ContentBasedDeduplication", "false"),
        ("DelaySeconds", "1"),
    ):
        error = failure_of(api, "CreateQueue", QueueName=name, Attributes={**fifo, attribute: value})
        assert (error.status, error.code) == (400, "QueueAlreadyExists")
        text = f"A queue already exists with the same name and a different value for attribute {attribute}"
        assert error.text == text


def test_a_queue_of_another_kind_has_that_name(api: SqsHttp, node: NodeProcess, queue_name: str) -> None:
    name = queue_name[-60:] + ".fifo"
    assert SqsHttp(node.http).raw("POST", f"/messages/{name}", b"x").status == 200
    error = failure_of(api, "CreateQueue", QueueName=name, Attributes={"FifoQueue": "true"})
    assert error.code == "QueueAlreadyExists"


def test_the_node_shows_what_it_is_asked_to_ignore(api: SqsHttp, make_queue: MakeQueue) -> None:
    for action, more in (
        ("AddPermission", {"AWSAccountIds": ["111122223333"], "Actions": ["SendMessage"]}),
        ("RemovePermission", {}),
    ):
        error = failure_of(api, action, QueueUrl=make_queue(), Label="a", **more)
        assert error.code == "AWS.SimpleQueueService.UnsupportedOperation"
        assert "sqs_ignore" in error.text


# --- dead letters -----------------------------------------------------------------------------------------------------


def test_a_redrive_policy_is_set_shown_and_cleared(api: SqsHttp, make_queue: MakeQueue) -> None:
    target, source = make_queue(), make_queue()
    for count in (1, "1000"):
        api("SetQueueAttributes", QueueUrl=source, Attributes={"RedrivePolicy": redrive(api, target, count)})
        shown = json.loads(attributes_of(api, source, "RedrivePolicy")["RedrivePolicy"])
        assert shown == json.loads(redrive(api, target, int(count)))
    assert api("ListDeadLetterSourceQueues", QueueUrl=target) == {"queueUrls": [source]}
    assert api("CreateQueue", QueueName=name_of(source), Attributes={"RedrivePolicy": redrive(api, target, 1000)})
    error = failure_of(
        api, "CreateQueue", QueueName=name_of(source), Attributes={"RedrivePolicy": redrive(api, target)}
    )
    assert error.code == "QueueAlreadyExists"
    api("SetQueueAttributes", QueueUrl=source, Attributes={"RedrivePolicy": ""})
    assert attributes_of(api, source, "RedrivePolicy") == {}
    assert api("ListDeadLetterSourceQueues", QueueUrl=target) == {}


def test_redrive_policies_that_are_refused(api: SqsHttp, make_queue: MakeQueue) -> None:
    source, target, fifo = make_queue(), make_queue(), make_queue(".fifo")
    arn = "arn:aws:sqs:us-east-1:000000000000:no-such-queue"
    policies = [
        redrive(api, target, 0),
        redrive(api, target, 1001),
        redrive(api, target, "x"),
        redrive(api, target, True),
        redrive(api, target, None),
        redrive(api, fifo),
        json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 1}),
        json.dumps({"deadLetterTargetArn": "x", "maxReceiveCount": 1}),
        json.dumps({"maxReceiveCount": 1}),
        "[]",
        "[" * 5000,
    ]
    for policy in policies:
        error = failure_of(api, "SetQueueAttributes", QueueUrl=source, Attributes={"RedrivePolicy": policy})
        assert error.code == "InvalidParameterValue", policy


def test_a_queue_says_whose_dead_letters_it_takes(api: SqsHttp, make_queue: MakeQueue) -> None:
    source, other, target = make_queue(), make_queue(), make_queue()
    policy = {"RedrivePolicy": redrive(api, target)}
    arn = attributes_of(api, source, "QueueArn")["QueueArn"]
    by_queue = json.dumps({"redrivePermission": "byQueue", "sourceQueueArns": [arn]})
    for text, allowed in (('{"redrivePermission":"denyAll"}', ()), (by_queue, (source,)), ("", (source, other))):
        api("SetQueueAttributes", QueueUrl=target, Attributes={"RedriveAllowPolicy": text})
        shown = attributes_of(api, target, "RedriveAllowPolicy")
        assert (json.loads(shown["RedriveAllowPolicy"]) == json.loads(text)) if text else not shown
        for url in (source, other):
            if url in allowed:
                api("SetQueueAttributes", QueueUrl=url, Attributes=policy)
                api("SetQueueAttributes", QueueUrl=url, Attributes={"RedrivePolicy": ""})
            else:
                error = failure_of(api, "SetQueueAttributes", QueueUrl=url, Attributes=policy)
                assert error.code == "InvalidParameterValue"


# --- tags and lists ---------------------------------------------------------------------------------------------------


def test_tags(api: SqsHttp, queue_name: str) -> None:
    url = api("CreateQueue", QueueName=queue_name[-60:], tags={"a": "1", "ü": ""})["QueueUrl"]
    assert api("ListQueueTags", QueueUrl=url) == {"Tags": {"a": "1", "ü": ""}}
    assert api("TagQueue", QueueUrl=url, Tags={"a": "2", "b": "<&>"}) == {}
    assert api("UntagQueue", QueueUrl=url, TagKeys=["ü", "never there"]) == {}
    assert api("ListQueueTags", QueueUrl=url) == {"Tags": {"a": "2", "b": "<&>"}}
    assert api("UntagQueue", QueueUrl=url, TagKeys=["a", "b"]) == {}
    assert api("ListQueueTags", QueueUrl=url) == {}
    for tags in ({"": "x"}, {"k" * 129: "x"}, {"k": "v" * 257}, {str(number): "x" for number in range(51)}):
        assert failure_of(api, "TagQueue", QueueUrl=url, Tags=tags).code == "InvalidParameterValue"
    assert api("TagQueue", QueueUrl=url, Tags={str(number): "x" for number in range(50)}) == {}
    assert failure_of(api, "TagQueue", QueueUrl=url, Tags={"more": "x"}).code == "InvalidParameterValue"


def test_queues_are_listed_by_name_in_pages(api: SqsHttp, queue_name: str, node: NodeProcess) -> None:
    prefix = queue_name[-50:]
    urls = [api("CreateQueue", QueueName=f"{prefix}-{number}")["QueueUrl"] for number in (3, 1, 2)]
    urls.sort()
    assert api("ListQueues", QueueNamePrefix=prefix) == {"QueueUrls": urls}
    page = api("ListQueues", QueueNamePrefix=prefix, MaxResults=2)
    assert page["QueueUrls"] == urls[:2]
    assert api("ListQueues", QueueNamePrefix=prefix, MaxResults=2, NextToken=page["NextToken"]) == {
        "QueueUrls": urls[2:]
    }
    assert "NextToken" not in api("ListQueues", QueueNamePrefix=prefix, MaxResults=3)
    assert api("ListQueues", QueueNamePrefix=f"{prefix}-4") == {}
    for wrong in ({"MaxResults": 0}, {"MaxResults": 1001}, {"MaxResults": 1, "NextToken": "%"}, {"NextToken": "x"}):
        assert failure_of(api, "ListQueues", QueueNamePrefix=prefix, **wrong).code == "InvalidParameterValue"


def test_sources_of_dead_letters_are_listed_in_pages(api: SqsHttp, make_queue: MakeQueue) -> None:
    target = make_queue()
    sources = sorted(make_queue(RedrivePolicy=redrive(api, target)) for _ in range(3))
    page = api("ListDeadLetterSourceQueues", QueueUrl=target, MaxResults=2)
    assert page["queueUrls"] == sources[:2]
    rest = api("ListDeadLetterSourceQueues", QueueUrl=target, MaxResults=2, NextToken=page["NextToken"])
    assert rest == {"queueUrls": sources[2:]}


@pytest.mark.parametrize("suffix", ["", ".fifo"])
def test_other_protocols_set_no_queue_for_dead_letters_of_another_kind(
    api: SqsHttp, node: NodeProcess, make_queue: MakeQueue, suffix: str
) -> None:
    source = name_of(make_queue(suffix))
    alike, other = (name_of(make_queue(end)) for end in (suffix, "" if suffix else ".fifo"))
    for target, status in ((other, 400), (alike, 204)):
        body = json.dumps({"dead_letter_queue": target}).encode()
        answer = call(node.http, "PATCH", f"/v1/queues/{source}/properties", body, {"content-type": "application/json"})
        assert answer.status == status, answer
        assert status == 204 or json.loads(answer.body)["code"] == "bad_property"
