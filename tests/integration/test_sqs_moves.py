"""Tasks that move dead letters, and repeated attempts, over the SQS port in both forms."""

from __future__ import annotations

from .cluster import NodeProcess, wait_for
from .sqs_fixtures import MakeQueue, api, arn_of, bodies, failure_of, make_queue, redrive
from .sqs_http import SqsHttp

__all__ = ["api", "make_queue"]

VALUE = "InvalidParameterValue"


def with_dead_letters(api: SqsHttp, make_queue: MakeQueue, *texts: str) -> tuple[str, str]:
    """Return the URLs of a queue and of the one with its dead letters."""
    target = make_queue()
    source = make_queue(RedrivePolicy=redrive(api, target))
    for text in texts:
        api("SendMessage", QueueUrl=source, MessageBody=text)
    assert bodies(api, source, VisibilityTimeout=0) == list(texts)
    assert bodies(api, source) == []
    return source, target


def last_task(api: SqsHttp, url: str) -> dict[str, str]:
    task: dict[str, str] = api("ListMessageMoveTasks", SourceArn=arn_of(api, url))["Results"][0]
    return task


def test_dead_letters_go_back_where_they_came_from(api: SqsHttp, make_queue: MakeQueue) -> None:
    source, target = with_dead_letters(api, make_queue, "a", "b")
    api("SendMessage", QueueUrl=target, MessageBody="from nowhere")
    assert api("ListMessageMoveTasks", SourceArn=arn_of(api, target)) == {}
    handle = api("StartMessageMoveTask", SourceArn=arn_of(api, target))["TaskHandle"]
    wait_for(lambda: last_task(api, target)["Status"] == "COMPLETED", "the end of the task")
    task = last_task(api, target)
    assert "TaskHandle" not in task
    assert "DestinationArn" not in task
    assert task["ApproximateNumberOfMessagesMoved"] == "2"
    assert task["SourceArn"] == arn_of(api, target)
    assert len(task["StartedTimestamp"]) == 13
    assert bodies(api, source) == ["a", "b"]
    assert bodies(api, target) == ["from nowhere"]
    error = failure_of(api, "CancelMessageMoveTask", TaskHandle=handle)
    assert (error.status, error.code, error.text) == (404, "ResourceNotFoundException", "Task does not exist.")


def test_a_task_moves_to_any_queue_at_a_rate_until_it_is_cancelled(api: SqsHttp, make_queue: MakeQueue) -> None:
    _source, target = with_dead_letters(api, make_queue, *"abcdefghij")
    other = make_queue()
    given = {"SourceArn": arn_of(api, target), "DestinationArn": arn_of(api, other), "MaxNumberOfMessagesPerSecond": 1}
    handle = api("StartMessageMoveTask", **given)["TaskHandle"]
    error = failure_of(api, "StartMessageMoveTask", **given)
    text = "There is already a task running. Only one active task is allowed for a source queue arn at a given time."
    assert (error.code, error.text) == (VALUE, text)
    task = last_task(api, target)
    assert (task["Status"], task["TaskHandle"], task["DestinationArn"]) == ("RUNNING", handle, arn_of(api, other))
    assert (task["MaxNumberOfMessagesPerSecond"], task["ApproximateNumberOfMessagesToMove"]) == ("1", "10")
    wait_for(lambda: int(last_task(api, target)["ApproximateNumberOfMessagesMoved"]) > 0, "a moved message")
    moved = int(api("CancelMessageMoveTask", TaskHandle=handle)["ApproximateNumberOfMessagesMoved"])
    assert 0 < moved < 10
    assert last_task(api, target)["Status"] == "CANCELLED"
    assert len(bodies(api, other)) == moved


def test_tasks_that_are_refused(api: SqsHttp, make_queue: MakeQueue) -> None:
    url = make_queue()
    arn, none = arn_of(api, url), "arn:aws:sqs:us-east-1:000000000000:no-such-queue"
    error = failure_of(api, "StartMessageMoveTask", SourceArn=arn)
    assert (error.code, error.text) == (VALUE, "Source queue must be configured as a Dead Letter Queue.")
    _source, target = with_dead_letters(api, make_queue)
    for action in ("StartMessageMoveTask", "ListMessageMoveTasks"):
        error = failure_of(api, action, SourceArn=none)
        text = "The resource that you specified for the SourceArn parameter doesn't exist."
        assert (error.status, error.code, error.text) == (404, "ResourceNotFoundException", text)
        assert failure_of(api, action, SourceArn="x").code == VALUE
        assert failure_of(api, action).code == "MissingParameter"
    given = {"SourceArn": arn_of(api, target)}
    error = failure_of(api, "StartMessageMoveTask", **given, DestinationArn=none)
    assert (error.status, error.code) == (404, "ResourceNotFoundException")
    for rate in (0, 501):
        assert failure_of(api, "StartMessageMoveTask", **given, MaxNumberOfMessagesPerSecond=rate).code == VALUE
    for count in (0, 11):
        assert failure_of(api, "ListMessageMoveTasks", **given, MaxResults=count).code == VALUE
    for handle in ("x", "AAAA", "W10=", "WzEsMl0=", "x" * 2000):
        error = failure_of(api, "CancelMessageMoveTask", TaskHandle=handle)
        assert (error.code, error.text) == (VALUE, "Value for parameter TaskHandle is invalid.")


# --- attempts ---------------------------------------------------------------------------------------------------------


def repeating(node: NodeProcess, api: SqsHttp, invocation: str) -> SqsHttp:
    return SqsHttp(node.sqs, api.form, {"amz-sdk-invocation-id": invocation, "amz-sdk-request": "attempt=1"})


def test_a_push_of_an_sdk_is_stored_once(
    api: SqsHttp, node: NodeProcess, make_queue: MakeQueue, queue_name: str
) -> None:
    url = make_queue()
    sdk = repeating(node, api, queue_name[-60:])
    given = {"QueueUrl": url, "MessageBody": "x"}
    first = sdk("SendMessage", **given)
    assert sdk("SendMessage", **given) == first
    assert sdk("SendMessage", QueueUrl=url, MessageBody="y")["MessageId"] != first["MessageId"]
    assert api("SendMessage", **given)["MessageId"] != first["MessageId"]
    other = repeating(node, api, "other " + queue_name[-50:])
    assert other("SendMessage", **given)["MessageId"] != first["MessageId"]
    too_long = repeating(node, api, "i" * 65)
    assert too_long("SendMessage", **given)["MessageId"] != too_long("SendMessage", **given)["MessageId"]
    assert bodies(api, url) == ["x", "y", "x", "x", "x", "x"]


def test_a_batch_of_an_sdk_is_stored_once(
    api: SqsHttp, node: NodeProcess, make_queue: MakeQueue, queue_name: str
) -> None:
    url = make_queue()
    sdk = repeating(node, api, queue_name[-60:])
    entries = [{"Id": str(number), "MessageBody": "x"} for number in range(5)]
    first = sdk("SendMessageBatch", QueueUrl=url, Entries=entries)
    assert len({one["MessageId"] for one in first["Successful"]}) == 5
    assert sdk("SendMessageBatch", QueueUrl=url, Entries=entries) == first
    assert bodies(api, url) == ["x"] * 5


def test_a_receive_of_an_sdk_gets_the_same_messages(
    api: SqsHttp, node: NodeProcess, make_queue: MakeQueue, queue_name: str
) -> None:
    url = make_queue()
    sdk = repeating(node, api, queue_name[-60:])
    for body in "abcd":
        api("SendMessage", QueueUrl=url, MessageBody=body)
    given = {"QueueUrl": url, "MaxNumberOfMessages": 2, "AttributeNames": ["ApproximateReceiveCount"]}
    first = sdk("ReceiveMessage", **given)["Messages"]
    again = sdk("ReceiveMessage", **given)["Messages"]
    names = ("MessageId", "Body", "Attributes")
    assert [[one[name] for name in names] for one in again] == [[one[name] for name in names] for one in first]
    api("DeleteMessage", QueueUrl=url, ReceiptHandle=again[0]["ReceiptHandle"])
    assert [one["Body"] for one in sdk("ReceiveMessage", **given)["Messages"]] == ["c", "d"]


def test_a_receive_of_a_fifo_queue_names_its_attempt(api: SqsHttp, make_queue: MakeQueue) -> None:
    url = make_queue(".fifo", ContentBasedDeduplication="true")
    for body in "ab":
        api("SendMessage", QueueUrl=url, MessageBody=body, MessageGroupId="g")
    for _ in range(2):
        assert bodies(api, url, ReceiveRequestAttemptId="one") == ["a", "b"]
    assert bodies(api, url, ReceiveRequestAttemptId="two") == []
