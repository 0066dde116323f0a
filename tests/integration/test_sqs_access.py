"""Tokens on the SQS port: boto3 signs with their keys, and each action needs a role on its queue."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from lmqcluster.node.access.sqs_keys import secret_access_key, sqs_key
from lmqcluster.node.access.tokens import create_token
from lmqcluster.node.node import Node
from lmqcluster.protocols.sqs import SqsPort
from lmqcluster.wire.address import Address

from .guarded_node import guarded_node

READ = {"GetQueueUrl", "GetQueueAttributes", "ListQueueTags", "ListDeadLetterSourceQueues", "ListMessageMoveTasks"}
ADMIN = {"DeleteQueue", "PurgeQueue", "StartMessageMoveTask", "AddPermission", "RemovePermission"}


@dataclass
class Port:
    """A port with tokens."""

    node: Node
    port: SqsPort

    async def client(self, name: str, role: str, queues: str = ".*") -> Any:
        """Return a client of boto3 with the key of a new token."""
        secret = await create_token(self.node, name, role, queues, None, sqs=True)
        return self.with_key(name, secret_access_key(sqs_key(secret.encode())))

    def with_key(self, name: str, secret: str) -> Any:
        return boto3.client(
            "sqs",
            endpoint_url=f"http://127.0.0.1:{self.port.port}",
            region_name="us-east-1",
            aws_access_key_id=name,
            aws_secret_access_key=secret,
            config=Config(retries={"max_attempts": 0}),
        )


@asynccontextmanager
async def port_with_tokens(folder: Path) -> AsyncIterator[Port]:
    async with guarded_node(folder, sqs=Address("127.0.0.1", 2)) as guarded:
        port = SqsPort(guarded.node, "127.0.0.1", 0)
        await port.start()
        try:
            yield Port(guarded.node, port)
        finally:
            port.retire()
            await port.stop(1.0)


async def code_of(call: Callable[..., Any], **given: Any) -> str:
    """Return the code of the error of a call, empty if it succeeds."""
    try:
        await asyncio.to_thread(call, **given)
    except ClientError as exc:
        return str(exc.response["Error"]["Code"])
    return ""


CALLS: list[tuple[str, dict[str, Any]]] = [
    ("get_queue_url", {"QueueName": "shop"}),
    ("get_queue_attributes", {"QueueUrl": "shop", "AttributeNames": ["All"]}),
    ("list_queue_tags", {"QueueUrl": "shop"}),
    ("list_dead_letter_source_queues", {"QueueUrl": "shop"}),
    ("list_message_move_tasks", {"SourceArn": "arn:aws:sqs:x:y:shop"}),
    ("set_queue_attributes", {"QueueUrl": "shop", "Attributes": {"DelaySeconds": "0"}}),
    ("tag_queue", {"QueueUrl": "shop", "Tags": {"a": "b"}}),
    ("untag_queue", {"QueueUrl": "shop", "TagKeys": ["a"]}),
    ("create_queue", {"QueueName": "shop"}),
    ("send_message", {"QueueUrl": "shop", "MessageBody": "x"}),
    ("send_message_batch", {"QueueUrl": "shop", "Entries": [{"Id": "a", "MessageBody": "x"}]}),
    ("receive_message", {"QueueUrl": "shop"}),
    ("delete_message", {"QueueUrl": "shop", "ReceiptHandle": "x"}),
    ("delete_message_batch", {"QueueUrl": "shop", "Entries": [{"Id": "a", "ReceiptHandle": "x"}]}),
    ("change_message_visibility", {"QueueUrl": "shop", "ReceiptHandle": "x", "VisibilityTimeout": 1}),
    ("start_message_move_task", {"SourceArn": "arn:aws:sqs:x:y:shop"}),
    ("add_permission", {"QueueUrl": "shop", "Label": "a", "AWSAccountIds": ["1"], "Actions": ["*"]}),
    ("remove_permission", {"QueueUrl": "shop", "Label": "a"}),
    ("purge_queue", {"QueueUrl": "shop"}),
    ("delete_queue", {"QueueUrl": "shop"}),
]


def test_each_action_needs_its_role_on_its_queue(tmp_path: Path) -> None:
    async def main() -> None:
        async with port_with_tokens(tmp_path) as port:
            admin = await port.client("admin", "admin")
            reader, writer = await port.client("reader", "read"), await port.client("writer", "write", "^shop")
            stranger = await port.client("stranger", "admin", "^other")
            assert await code_of(admin.create_queue, QueueName="shop") == ""
            for name, given in CALLS:
                action = admin.meta.method_to_api_mapping[name]
                found = {
                    who: await code_of(getattr(client, name), **given) == "AccessDenied"
                    for who, client in (
                        ("reader", reader),
                        ("writer", writer),
                        ("stranger", stranger),
                        ("admin", admin),
                    )
                }
                expected = {"reader": action not in READ, "writer": action in ADMIN, "stranger": True, "admin": False}
                assert found == expected, action
            for url in ("shop", "other", "mine"):
                await asyncio.to_thread(admin.create_queue, QueueName=url)
            listed = await asyncio.to_thread(writer.list_queues)
            assert [url.rpartition("/")[2] for url in listed["QueueUrls"]] == ["shop"]

    asyncio.run(main())


def test_a_queue_belongs_to_the_token_that_made_it_with_all_its_attributes(tmp_path: Path) -> None:
    async def main() -> None:
        async with port_with_tokens(tmp_path) as port:
            writer = await port.client("writer", "write", "^shop")
            given = {"QueueName": "shop.fifo", "Attributes": {"FifoQueue": "true", "VisibilityTimeout": "7"}}
            for _ in range(2):
                assert await code_of(writer.create_queue, **given) == ""
            queue = port.node.service.sender.state().queues[b"shop.fifo"]
            assert (queue.owner, queue.own["timeout"], queue.annotations["sqs.kind"]) == (b"writer", 7, "fifo")
            arn = "arn:aws:sqs:x:y:other"
            policy = f'{{"deadLetterTargetArn":"{arn}","maxReceiveCount":1}}'
            attributes = {"RedrivePolicy": policy}
            code = await code_of(writer.create_queue, QueueName="shop", Attributes=attributes)
            assert code == "AccessDenied", "the token does not cover the queue for dead letters"

    asyncio.run(main())


def test_a_destination_of_a_move_task_is_shown_only_to_keys_that_cover_it(tmp_path: Path) -> None:
    async def main() -> None:
        async with port_with_tokens(tmp_path) as port:
            admin, reader = await port.client("admin", "admin"), await port.client("reader", "read", "^shop")
            for name in ("shop-dead", "other"):
                assert await code_of(admin.create_queue, QueueName=name) == ""
            source, destination = "arn:aws:sqs:x:y:shop-dead", "arn:aws:sqs:x:y:other"
            policy = f'{{"deadLetterTargetArn":"{source}","maxReceiveCount":1}}'
            assert await code_of(admin.create_queue, QueueName="shop", Attributes={"RedrivePolicy": policy}) == ""
            start = admin.start_message_move_task
            assert await code_of(start, SourceArn=source, DestinationArn=destination) == ""
            for client, shows in ((admin, True), (reader, False)):
                (task,) = (await asyncio.to_thread(client.list_message_move_tasks, SourceArn=source))["Results"]
                assert ("DestinationArn" in task) is shows

    asyncio.run(main())


@pytest.mark.parametrize(
    ("name", "secret", "code"),
    [
        ("unknown", "x", "InvalidClientTokenId"),
        ("reader", "wrong", "SignatureDoesNotMatch"),
    ],
)
def test_wrong_keys(tmp_path: Path, name: str, secret: str, code: str) -> None:
    async def main() -> None:
        async with port_with_tokens(tmp_path) as port:
            await port.client("reader", "read")
            client = port.with_key(name, secret)
            assert await code_of(client.list_queues) == code
            assert await code_of(client.get_queue_url, QueueName="x" * 1000) == code

    asyncio.run(main())
