"""Kinds of queues: the properties and annotations with which the cluster creates a queue of each."""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple, Protocol

from ...core.queue.annotations import FIFO, KIND
from ...wire.errors import LmqError
from ...wire.limits import PULL_COUNT_MAX
from .polls import RETRY_WITHOUT_END

__all__ = ["FIFO_NAME", "KINDS", "NewQueue", "new_queue", "sqs_defaults"]

KINDS: Final = ("plain", "fifo", "fair")
FIFO_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,75}\.fifo")
"""Names of FIFO queues."""
_CONTENT_BASED: Final = "sqs.ContentBasedDeduplication"
"""The annotation ``true`` of a FIFO queue in which the hash of a body is a deduplication id."""
_SQS: Final = {"retry": RETRY_WITHOUT_END, "timeout": 30, "delay": 0, "max_age": 345_600}
_SQS_ITEM_BYTES_MAX: Final = 1024 * 1024
_FIFO: Final = {"group_mode": "ordered", "key_window": 300, "key_scope": "queue"}
_FIFO_GROUP_MESSAGES: Final = 10
"""Messages of a group that one receive may take, unless the node takes more in a receive."""


class Limits(Protocol):
    """The options of a node that bound new queues."""

    @property
    def message_bytes_max(self) -> int:
        """Return the most bytes of a message."""

    @property
    def sqs_limits(self) -> str:
        """Return ``aws``, or ``relaxed`` for the limits of the cluster."""


class NewQueue(NamedTuple):
    """Properties and annotations of a new queue.

    Attributes:
        properties: by name.
        annotations: by name.
    """

    properties: dict[str, Any]
    annotations: dict[str, str]


def sqs_defaults(limits: Limits, *, is_fifo: bool) -> dict[str, Any]:
    """Return the properties of a new queue of SQS whose creator sets none."""
    common = {**_SQS, "max_item_size": min(limits.message_bytes_max, _SQS_ITEM_BYTES_MAX)}
    if not is_fifo:
        return {**common, "group_mode": "fair"}
    in_flight = PULL_COUNT_MAX if limits.sqs_limits == "relaxed" else _FIFO_GROUP_MESSAGES
    return {**common, **_FIFO, "group_max_in_flight": in_flight}


def new_queue(limits: Limits, name: bytes, kind: str, *, by_content: bool | None = None) -> NewQueue:
    """Return what a queue of a kind has that its creator does not change.

    Args:
        limits: the options of the node.
        name: the name of the queue.
        kind: one of `KINDS`.
        by_content: for a FIFO queue, whether the hash of a body is a deduplication id; None if not stated.

    Raises:
        LmqError: ``bad_request`` for a name that SQS does not allow, and if `by_content` is given for another kind.
    """
    if kind != "fifo":
        if by_content is not None:
            raise LmqError("bad_request", f"content_deduplication applies to a queue of the kind fifo, not {kind}")
        return NewQueue({"group_mode": "fair"} if kind == "fair" else {}, {})
    if FIFO_NAME.fullmatch(name.decode("utf-8", "replace")) is None:
        raise LmqError(
            "bad_request",
            "the name of a FIFO queue has 1 to 75 letters, digits, hyphens and underscores, and ends with .fifo",
        )
    annotations = {KIND: FIFO}
    if by_content is not None:
        annotations[_CONTENT_BASED] = "true" if by_content else "false"
    return NewQueue(sqs_defaults(limits, is_fifo=True), annotations)
