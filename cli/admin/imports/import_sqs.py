"""``lmq-admin import sqs``: drains a queue of Amazon SQS, or of a server like it, into the cluster.

A message is received, which hides it at the source for a minute; pushed with an idempotency key made of its id; then deleted at
the source. If the program is interrupted in between, the message becomes visible at the source again and is pushed with the same
key, which stores nothing while the cluster remembers the key.
"""

from __future__ import annotations

import base64
import importlib
import re
from typing import Any, Final
from urllib.parse import quote, unquote, urlsplit

import click

from lmqcluster.protocols.sqs.message_attributes import Attribute, stored

from ...shared.connection.api import Api
from ...shared.connection.target import Target, target_options
from ...shared.errors import CliError, ExitCode
from ...shared.output import Column, print_table

__all__ = ["sqs"]

HIDDEN_S: Final = 60
"""How long a message is hidden at the source: less than the five minutes for which keys are guaranteed."""
BATCH: Final = 10
WAIT_S: Final = 5
TIMEOUT_S: Final = 60.0
CONTENT_TYPE: Final = "text/plain; charset=utf-8"
REGION: Final = re.compile(r"sqs\.([a-z0-9-]+)\.amazonaws\.")
_LEFT: Final = (
    "ApproximateNumberOfMessages",
    "ApproximateNumberOfMessagesNotVisible",
    "ApproximateNumberOfMessagesDelayed",
)
_COLUMNS: Final = [
    Column("Queue", "queue"),
    Column("Messages", "messages", right=True),
    Column("Left at the source", "left", right=True),
]


class Source:
    """A queue at the source.

    Attributes:
        name: of the queue.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.name = unquote(parts.path.rpartition("/")[2])
        if parts.scheme not in ("http", "https") or not parts.netloc or not self.name:
            raise click.UsageError(
                f"{url!r} is not a URL of a queue such as https://sqs.eu-west-1.amazonaws.com/1234/mail"
            )
        self._url = url
        self._host = parts.netloc
        self._client = _client(f"{parts.scheme}://{parts.netloc}")

    def receive(self) -> list[dict[str, Any]]:
        """Return some messages, hiding them; none after some seconds without any."""
        answer = self._ask(
            "receive_message",
            MaxNumberOfMessages=BATCH,
            VisibilityTimeout=HIDDEN_S,
            WaitTimeSeconds=WAIT_S,
            MessageAttributeNames=["All"],
            MessageSystemAttributeNames=["All"],
        )
        return list(answer.get("Messages", ()))

    def delete(self, messages: list[dict[str, Any]]) -> None:
        """Delete messages. One that cannot be deleted comes again."""
        entries = [{"Id": str(place), "ReceiptHandle": one["ReceiptHandle"]} for place, one in enumerate(messages)]
        self._ask("delete_message_batch", Entries=entries)

    def left(self) -> int:
        """Return the number of messages in the queue, including hidden ones."""
        found = self._ask("get_queue_attributes", AttributeNames=list(_LEFT))["Attributes"]
        return sum(int(found[name]) for name in _LEFT)

    def _ask(self, action: str, **parameters: Any) -> dict[str, Any]:
        """Carry out an action.

        Raises:
            CliError: the source is unreachable or refuses.
        """
        errors = importlib.import_module("botocore.exceptions")
        try:
            answer: dict[str, Any] = getattr(self._client, action)(QueueUrl=self._url, **parameters)
        except (errors.ClientError, errors.BotoCoreError) as exc:
            raise CliError(f"{self._host} cannot be used: {exc}", ExitCode.UNAVAILABLE) from exc
        return answer


def _client(endpoint: str) -> Any:
    """Return AWS's client.

    Raises:
        CliError: it is not installed.
    """
    try:
        boto3 = importlib.import_module("boto3")
    except ImportError as exc:
        raise CliError("boto3 is not installed: install lmqcluster with the extra sqs", ExitCode.CONFIGURATION) from exc
    region = REGION.search(endpoint)
    known = boto3.Session().region_name or "us-east-1"
    return boto3.client("sqs", endpoint_url=endpoint, region_name=known if region is None else region[1])


def _row(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message as a push has it, with its attributes in the form that the SQS port stores."""
    system = message.get("Attributes", {})
    attributes = {
        name: Attribute(one["DataType"], one["BinaryValue"] if "BinaryValue" in one else one["StringValue"])
        for name, one in message.get("MessageAttributes", {}).items()
    }
    values = stored(attributes, system.get("AWSTraceHeader"), system.get("MessageDeduplicationId"))
    row: dict[str, Any] = {
        "content": _encoded(message["Body"].encode()),
        "content_type": CONTENT_TYPE,
        "key": f"sqs:{message['MessageId']}",
        "attributes": {name: _encoded(one) if isinstance(one, bytes) else one for name, one in values.items()},
    }
    if "MessageGroupId" in system:
        row["group"] = system["MessageGroupId"]
    return row


def _encoded(data: bytes) -> dict[str, str]:
    return {"base64": base64.b64encode(data).decode("ascii")}


def _take_over(source: Source, queue: str, api: Api) -> int:
    """Move the messages of the source; return how many were pushed."""
    moved = 0
    while messages := source.receive():
        rows = [_row(one) for one in messages]
        api.post(f"/v1/queues/{quote(queue, safe='')}/messages", {"messages": rows}, timeout_s=TIMEOUT_S)
        source.delete(messages)
        moved += len(messages)
    return moved


@click.command(short_help="Drain a queue of Amazon SQS.")
@click.argument("urls", metavar="URL...", nargs=-1, required=True)
@target_options
def sqs(target: Target, urls: tuple[str, ...]) -> None:
    """Drain the queues of Amazon SQS, or of a server like it, at each URL into queues of the same names.

    Needs boto3, which finds the keys of the source as usual: in the environment, or in ~/.aws. Create the queues in the
    cluster first, with the attributes that they have at the source; a queue that does not exist becomes a plain one.
    Stop producers first, or repeat the command until they have switched over.

    Each message is stored exactly once, even if the command is interrupted and repeated within five minutes. After a
    longer interruption, up to 10 messages of each queue may be stored twice. Hidden messages remain at the source until
    they become visible.

    \b
    Example:
      lmq-admin import sqs https://sqs.eu-west-1.amazonaws.com/123456789012/orders
    """
    rows: list[tuple[str, int, int]] = []
    for source in [Source(url) for url in urls]:
        moved = _take_over(source, source.name, target.api)
        rows.append((source.name, moved, source.left()))
    print_table(_COLUMNS, rows, view=target.view)
