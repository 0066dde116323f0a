"""The parameters of all actions, with their names in both protocols."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final, NamedTuple

__all__ = ["SHAPES", "Kind", "Member", "Parameters", "RawAttribute"]

Parameters = Mapping[str, Any]
"""The parameters of a request by the names of the JSON protocol; those that are missing are absent."""


class Kind(StrEnum):
    """The kind of a parameter."""

    TEXT = "text"
    NUMBER = "number"
    TEXTS = "a list of texts"
    MAP = "texts by name"
    ATTRIBUTES = "attributes of a message, by name"
    ENTRIES = "the entries of a batch"


class RawAttribute(NamedTuple):
    """An attribute of a message as a client gave it; None for what is missing."""

    data_type: str | None
    text: str | None
    data: bytes | None
    has_list: bool = False


class Member(NamedTuple):
    """A parameter.

    Attributes:
        name: in JSON.
        kind: what it is.
        query: name of one of its values in a query; empty if it is `name`.
        key, value: names of the parts of a value in a query, for a `Kind.MAP`.
        members: the parameters of an entry.
    """

    name: str
    kind: Kind = Kind.TEXT
    query: str = ""
    key: str = "Name"
    value: str = "Value"
    members: tuple[Member, ...] = ()

    @property
    def query_name(self) -> str:
        """Return the name in a query."""
        return self.query or self.name


_QUEUE: Final = Member("QueueUrl")
_RECEIPT: Final = Member("ReceiptHandle")
_ATTRIBUTES: Final = Member("Attributes", Kind.MAP, "Attribute")
_TIMEOUT: Final = Member("VisibilityTimeout", Kind.NUMBER)
_PAGE: Final = (Member("MaxResults", Kind.NUMBER), Member("NextToken"))
_NAMES: Final = Member("AttributeNames", Kind.TEXTS, "AttributeName")
_MESSAGE: Final = (
    Member("MessageBody"),
    Member("DelaySeconds", Kind.NUMBER),
    Member("MessageAttributes", Kind.ATTRIBUTES, "MessageAttribute"),
    Member("MessageSystemAttributes", Kind.ATTRIBUTES, "MessageSystemAttribute"),
    Member("MessageDeduplicationId"),
    Member("MessageGroupId"),
)


def _entries(action: str, *members: Member) -> Member:
    return Member("Entries", Kind.ENTRIES, f"{action}RequestEntry", members=(Member("Id"), *members))


def _tags(name: str) -> Member:
    return Member(name, Kind.MAP, "Tag", "Key")


SHAPES: Final[Mapping[str, tuple[Member, ...]]] = {
    "AddPermission": (
        _QUEUE,
        Member("Label"),
        Member("AWSAccountIds", Kind.TEXTS, "AWSAccountId"),
        Member("Actions", Kind.TEXTS, "ActionName"),
    ),
    "CancelMessageMoveTask": (Member("TaskHandle"),),
    "ChangeMessageVisibility": (_QUEUE, _RECEIPT, _TIMEOUT),
    "ChangeMessageVisibilityBatch": (_QUEUE, _entries("ChangeMessageVisibilityBatch", _RECEIPT, _TIMEOUT)),
    "CreateQueue": (Member("QueueName"), _ATTRIBUTES, _tags("tags")),
    "DeleteMessage": (_QUEUE, _RECEIPT),
    "DeleteMessageBatch": (_QUEUE, _entries("DeleteMessageBatch", _RECEIPT)),
    "DeleteQueue": (_QUEUE,),
    "GetQueueAttributes": (_QUEUE, _NAMES),
    "GetQueueUrl": (Member("QueueName"), Member("QueueOwnerAWSAccountId")),
    "ListDeadLetterSourceQueues": (_QUEUE, *_PAGE),
    "ListMessageMoveTasks": (Member("SourceArn"), Member("MaxResults", Kind.NUMBER)),
    "ListQueueTags": (_QUEUE,),
    "ListQueues": (Member("QueueNamePrefix"), *_PAGE),
    "PurgeQueue": (_QUEUE,),
    "ReceiveMessage": (
        _QUEUE,
        Member("MaxNumberOfMessages", Kind.NUMBER),
        _TIMEOUT,
        Member("WaitTimeSeconds", Kind.NUMBER),
        _NAMES,
        Member("MessageSystemAttributeNames", Kind.TEXTS, "MessageSystemAttributeName"),
        Member("MessageAttributeNames", Kind.TEXTS, "MessageAttributeName"),
        Member("ReceiveRequestAttemptId"),
    ),
    "RemovePermission": (_QUEUE, Member("Label")),
    "SendMessage": (_QUEUE, *_MESSAGE),
    "SendMessageBatch": (_QUEUE, _entries("SendMessageBatch", *_MESSAGE)),
    "SetQueueAttributes": (_QUEUE, _ATTRIBUTES),
    "StartMessageMoveTask": (
        Member("SourceArn"),
        Member("DestinationArn"),
        Member("MaxNumberOfMessagesPerSecond", Kind.NUMBER),
    ),
    "TagQueue": (_QUEUE, _tags("Tags")),
    "UntagQueue": (_QUEUE, Member("TagKeys", Kind.TEXTS, "TagKey")),
}
"""The parameters of each action."""
