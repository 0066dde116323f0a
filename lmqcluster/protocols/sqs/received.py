"""Delivered messages as clients of SQS see them."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from hashlib import md5, sha256
from typing import TYPE_CHECKING, Final

import msgpack

from ...wire.attributes import unpack_attributes
from ...wire.legacy_msgpack import plain_body
from .errors import SqsError
from .message_attributes import (
    DEDUPLICATION,
    TRACE_HEADER,
    Attribute,
    check_text,
    md5_of,
    of_stored,
    selected,
    shown,
)
from .receipts import Receipt

if TYPE_CHECKING:
    from ...node.queues.polls import Polled
    from ...node.queues.pulls.deliveries import Delivery
    from .call import Call, Tools
    from .queue_facts import QueueFacts
    from .rendering import Output

__all__ = ["Received"]

_ENCODING: Final = "lmq.encoding"
_CONTENT_TYPE: Final = "lmq.content_type"


class Received:
    """Shows the messages of one receive.

    Args:
        tools: what all actions use.
        call: the request.
        facts: the queue.
    """

    def __init__(self, tools: Tools, call: Call, facts: QueueFacts) -> None:
        self._tools = tools
        self._call = call
        self._facts = facts
        self._attribute_names: Iterable[str] = call.get("MessageAttributeNames", ())
        self._system_names = {*call.get("AttributeNames", ()), *call.get("MessageSystemAttributeNames", ())}
        self._received_s = tools.now_us() // 1_000_000

    def message(self, polled: Polled) -> Output:
        """Return one message."""
        delivery, tools = polled.delivery, self._tools
        body, added = self._body(polled)
        output: Output = {
            "MessageId": tools.receipts.message_id(_first_sequence(delivery)),
            "ReceiptHandle": tools.receipts.handle(
                self._facts.name, Receipt(delivery.sequence, polled.tag, self._received_s)
            ),
            "MD5OfBody": md5(body.encode(), usedforsecurity=False).hexdigest(),
            "Body": body,
        }
        values = unpack_attributes(delivery.attributes) if delivery.attributes and not delivery.compound else {}
        attributes, hidden = of_stored(values)
        if self._system_names:
            system = self._system(polled, body, hidden)
            names = self._system_names
            wanted = system if "All" in names else {name: one for name, one in system.items() if name in names}
            if wanted:
                output["Attributes"] = wanted
        chosen = selected({**added, **attributes}, self._attribute_names)
        if chosen:
            output["MessageAttributes"] = shown(chosen)
            output["MD5OfMessageAttributes"] = md5_of(chosen)
        return output

    def _body(self, polled: Polled) -> tuple[str, dict[str, Attribute]]:
        """Return the body as text, and attributes that say how it was made."""
        delivery = polled.delivery
        added: dict[str, Attribute] = {}
        if delivery.compound:
            parts = [plain_body(part.content_type, part.content) for part in delivery.parts]
            packed = msgpack.packb(parts, use_bin_type=True)
            added[_ENCODING] = Attribute("String", "msgpack+base64")
            return base64.b64encode(packed).decode("ascii"), added
        content_type = delivery.content_type
        if content_type is not None and not content_type.lower().startswith(b"text/"):
            added[_CONTENT_TYPE] = Attribute("String", content_type.decode("utf-8", "replace"))
        data = plain_body(content_type, delivery.content)
        try:
            text = data.decode()
            check_text(text)
        except (UnicodeDecodeError, SqsError):
            added[_ENCODING] = Attribute("String", "base64")
            return base64.b64encode(data).decode("ascii"), added
        return text, added

    def _system(self, polled: Polled, body: str, hidden: Mapping[str, object]) -> dict[str, str]:
        """Return all system attributes that a message has."""
        delivery, facts, identity = polled.delivery, self._facts, polled.delivery.identity
        traits, unix_us = delivery.traits, self._tools.service.unix_us
        pushed_us = round(delivery.pushed_s * 1e6) if identity is None else unix_us(identity.pushed_us)
        found = {
            "SenderId": self._tools.names.account,
            "SentTimestamp": str(pushed_us // 1000),
            "ApproximateReceiveCount": str(delivery.delivery if identity is None else identity.deliveries),
        }
        if identity is not None and identity.first_us:
            found["ApproximateFirstReceiveTimestamp"] = str(unix_us(identity.first_us) // 1000)
        if traits.group:
            found["MessageGroupId"] = traits.group.decode("utf-8", "replace")
        if facts.is_fifo:
            found["SequenceNumber"] = f"{delivery.sequence:020d}"
            own = hidden.get(DEDUPLICATION)
            if own is not None:
                found["MessageDeduplicationId"] = str(own) or sha256(body.encode()).hexdigest()
        trace = hidden.get(TRACE_HEADER)
        if isinstance(trace, str):
            found["AWSTraceHeader"] = trace
        if traits.origin is not None:
            found["DeadLetterQueueSourceArn"] = self._tools.names.arn(self._call.request, traits.origin.queue)
        return found


def _first_sequence(delivery: Delivery) -> int:
    """Return the sequence of a message in its first queue."""
    return delivery.sequence if delivery.identity is None else delivery.identity.sequence
