"""A request of a client, and what all actions use to carry one out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from .errors import missing, queue_missing
from .limits import limits_of
from .names import Names, arn_queue, url_queue
from .queue_attributes import Ignored
from .queue_facts import QueueFacts
from .receipts import Receipts
from .rendering import Output
from .shapes import Parameters

if TYPE_CHECKING:
    from ...node.node import Node
    from ..http.server.requests.request import Request
    from ..http.server.waits import Waits

__all__ = ["Action", "Call", "Tools", "subject_of"]


class Tools:
    """The parts of the node that all actions use, and the limits of clients.

    Attributes:
        service: the node's operations on queues.
        polled: those on messages that are named by sequence and tag.
        access: who may do what.
        names: URLs and ARNs.
        limits: what clients may ask for.
        ignored: what is stored without effect.
        receipts: receipt handles and ids of messages.
        waits: requests that wait for a message.
        message_bytes_max: most bytes of a message on this node.
        config: the options of the node.
    """

    def __init__(self, node: Node, waits: Waits) -> None:
        self.config = config = node.config
        self.service = node.service
        self.polled = node.service.polled
        self.access = node.access
        self.names = Names(config, has_tls=config.tls_cert is not None)
        self.limits = limits_of(config)
        self.ignored: Ignored = frozenset(config.sqs_ignore)
        self.receipts = Receipts(node.service.receipts)
        self.waits = waits
        self.message_bytes_max = config.message_bytes_max

    def known(self, name: bytes) -> QueueFacts | None:
        """Return a queue of the local replica, None if it has none of this name."""
        queue = self.service.sender.state().queues.get(name)
        return None if queue is None else QueueFacts(queue)

    async def existing(self, name: bytes) -> QueueFacts:
        """Return a queue; its settings are at least as new as the local replica.

        Raises:
            SqsError: ``QueueDoesNotExist``.
        """
        return self.known(name) or await self.present(name)

    async def present(self, name: bytes) -> QueueFacts:
        """Return a queue as it is now, after all changes that were acknowledged before.

        Raises:
            SqsError: ``QueueDoesNotExist``.
        """
        await self.service.sender.look_up()
        found = self.known(name)
        if found is None:
            raise queue_missing()
        return found

    def now_us(self) -> int:
        """Return the Unix time that the cluster's clock shows, in microseconds."""
        return self.service.unix_us(self.service.pulls.clock.now_us())


@dataclass(slots=True)
class Call:
    """A request with its parameters.

    Attributes:
        request: the HTTP request, or an earlier one with the same head, see `RepeatedCall`.
        action: name of the action.
        parameters: its parameters.
        queue: name of the queue that it is about; empty if it is about none.
        invocation: names all attempts of the call of an SDK, see `invocation_of`.
    """

    request: Request
    action: str
    parameters: Parameters
    queue: bytes
    invocation: bytes | None

    def text(self, name: str) -> str | None:
        """Return a parameter that is a text, None if it is missing."""
        return cast("str | None", self.parameters.get(name))

    def needed(self, name: str) -> str:
        """Return a parameter that is a text and must be there, perhaps empty.

        Raises:
            SqsError: ``MissingParameter``.
        """
        value = self.parameters.get(name)
        if value is None:
            raise missing(name)
        return cast("str", value)

    def get(self, name: str, default: Any) -> Any:
        """Return a parameter of any kind."""
        return self.parameters.get(name, default)


Action = Callable[[Call], Awaitable[Output | None]]
"""Carries out an action; returns None if it has no output. Raises `LmqError`."""


def subject_of(parameters: Parameters, first: str) -> bytes:
    """Return the name of the queue that a request is about, as the first parameter of its action names it.

    Raises:
        SqsError: ``MissingParameter``, ``InvalidParameterValue``.
    """
    value = parameters.get(first)
    if first == "QueueUrl":
        return url_queue(value)
    if first == "QueueName":
        if value is None:
            raise missing(first)
        return cast("str", value).encode("utf-8", "surrogatepass")
    if first == "SourceArn":
        if not value:
            raise missing(first)
        return arn_queue(value, first)
    return b""
