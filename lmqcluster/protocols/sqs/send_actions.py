"""Actions that send messages."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from hashlib import md5, sha256
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ...core import PushFlag
from ...node.queues.sending.push_items import PushItem, PushOptions, refusal_of
from ...wire.attributes import pack_attributes
from ...wire.sdk_attempts import attempt_of
from .batches import Entry, batch_output, entries_of, outcome_of
from .errors import BATCH_TOO_LONG, MISSING_PARAMETER, SqsError, as_sqs, invalid_value, missing, value_error
from .message_attributes import (
    TRACE_HEADER,
    Attribute,
    check_text,
    checked,
    checked_trace,
    md5_of,
    size_of,
    stored,
)

if TYPE_CHECKING:
    from .call import Action, Call, Tools
    from .queue_facts import QueueFacts
    from .rendering import Output

__all__ = ["SEND_ACTIONS", "TEXT", "SendActions"]

SEND_ACTIONS: Final = frozenset(("SendMessage", "SendMessageBatch"))
TEXT: Final = b"text/plain; charset=utf-8"
"""Content type of the messages."""
_ID: Final = re.compile(r"[!-~]{1,128}")
_TRACE: Final = "X-Amzn-Trace-Id"
_WRONG_KIND: Final = "The request include parameter that is not valid for this queue type."
_NO_DEDUPLICATION: Final = (
    "The queue should either have ContentBasedDeduplication enabled or MessageDeduplicationId provided explicitly"
)
_NO_ATTRIBUTES: Final[Mapping[str, Any]] = {}


class _Outgoing(NamedTuple):
    """A message that passed all checks: what is stored, and what the answer tells of it."""

    item: PushItem
    answer: Output


class SendActions:
    """The actions."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools

    def table(self) -> Mapping[str, Action]:
        """Return the actions by name."""
        return {"SendMessage": self.send, "SendMessageBatch": self.send_batch}

    async def send(self, call: Call) -> Output:
        """Store a message."""
        facts = await self._tools.existing(call.queue)
        outgoing = self._checked(facts, call, call.parameters, 0)
        ((flag, sequence),) = await self._push(facts, [outgoing.item], call.request.principal.owner)
        if flag >= PushFlag.FULL:
            raise refusal_of(flag)
        return self._result_of(facts, outgoing, sequence)

    async def send_batch(self, call: Call) -> Output:
        """Store messages in their order; those that fail a check, or that the queue refuses, are left out.

        A FIFO queue stores all that pass the checks, or none.
        """
        tools = self._tools
        facts = await tools.existing(call.queue)
        entries = entries_of(call, tools.limits.entries)
        size = sum(_size_of(entry) for entry in entries)
        if size > tools.limits.batch_bytes:
            most = tools.limits.batch_bytes
            text = f"Batch requests cannot be longer than {most} bytes. You have sent {size} bytes."
            raise SqsError(BATCH_TOO_LONG, text)
        if facts.is_fifo:
            for entry in entries:
                _check_fifo_entry(facts, entry)
        passed: list[tuple[Entry, _Outgoing]] = []
        failed: list[Output] = []
        for place, entry in enumerate(entries):
            try:
                passed.append((entry, self._checked(facts, call, entry, place)))
            except SqsError as exc:
                failed.append(outcome_of(entry, exc))
        items = [outgoing.item for _entry, outgoing in passed]
        results = await self._push(facts, items, call.request.principal.owner) if items else []
        successful: list[Output] = []
        for (entry, outgoing), (flag, sequence) in zip(passed, results, strict=True):
            if flag >= PushFlag.FULL:
                failed.append(outcome_of(entry, as_sqs(refusal_of(flag))))
            else:
                successful.append({"Id": entry["Id"], **self._result_of(facts, outgoing, sequence)})
        return batch_output(successful, failed)

    async def _push(self, facts: QueueFacts, items: Sequence[PushItem], owner: bytes) -> list[tuple[int, int]]:
        """Store messages, of which each is stored once however often the SDK repeats its request; return flags and sequences.

        Messages of a FIFO queue have their own ids for that.
        """
        service = self._tools.service
        if not facts.is_fifo:
            return await service.attempts.push(facts.name, items, owner)
        pushed = await service.push(facts.name, items, owner, tells_sequence=True, must_exist=True)
        return [(one.flag, one.sequence or 0) for one in pushed]

    def _result_of(self, facts: QueueFacts, outgoing: _Outgoing, sequence: int) -> Output:
        answer: Output = {"MessageId": self._tools.receipts.message_id(sequence), **outgoing.answer}
        if facts.is_fifo:
            answer["SequenceNumber"] = f"{sequence:020d}"
        return answer

    def _checked(self, facts: QueueFacts, call: Call, given: Mapping[str, Any], place: int) -> _Outgoing:
        """Return a message that a client sends, at a place of its request.

        Raises:
            SqsError: it fails a check.
        """
        text = given.get("MessageBody")
        if not text:
            raise missing("MessageBody")
        body = text.encode("utf-8", "surrogatepass")
        raw = given.get("MessageAttributes", _NO_ATTRIBUTES)
        bytes_max = facts.message_bytes(self._tools.message_bytes_max)
        if len(body) + (size_of(raw) if raw else 0) > bytes_max:
            reason = f"One or more parameters are invalid. Reason: Message must be shorter than {bytes_max} bytes."
            raise invalid_value(reason)
        check_text(text)
        attributes = checked(raw) if raw else _NO_ATTRIBUTES
        answer: Output = {"MD5OfMessageBody": md5(body, usedforsecurity=False).hexdigest()}
        if attributes:
            answer["MD5OfMessageAttributes"] = md5_of(attributes)
        trace = call.request.headers.get(_TRACE)
        own_trace = checked_trace(given.get("MessageSystemAttributes", _NO_ATTRIBUTES))
        if own_trace is not None:
            answer["MD5OfMessageSystemAttributes"] = md5_of({TRACE_HEADER: Attribute("String", own_trace)})
            trace = own_trace
        delay_s = self._delay_s(facts, given.get("DelaySeconds"))
        group = _group_of(given)
        key, deduplication = _deduplication_of(facts, given, body)
        values = stored(attributes, trace, deduplication) if attributes or trace or deduplication is not None else None
        options = PushOptions(delay_s=delay_s, group=group) if group or delay_s is not None else None
        packed = pack_attributes(values)
        if call.invocation is not None and not facts.is_fifo:
            key = attempt_of(call.invocation, body, packed, place)
        item = PushItem(body, TEXT, packed, key, options)
        return _Outgoing(item, answer)

    def _delay_s(self, facts: QueueFacts, given: int | None) -> float | None:
        """Return the delay of a message; None for that of its queue."""
        if given is None:
            return None
        most = self._tools.limits.delay_s
        if not 0 <= given <= most:
            raise value_error(given, "DelaySeconds", f"DelaySeconds must be >= 0 and <= {most}.")
        if not facts.is_fifo:
            return float(given)
        if given:
            raise value_error(given, "DelaySeconds", _WRONG_KIND)
        return None


def _size_of(entry: Mapping[str, Any]) -> int:
    text, attributes = entry.get("MessageBody", ""), entry.get("MessageAttributes")
    size = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
    return size + size_of(attributes) if attributes else size


def _group_of(given: Mapping[str, Any]) -> bytes:
    return _checked_id(given, "MessageGroupId").encode("ascii")


def _checked_id(given: Mapping[str, Any], name: str) -> str:
    """Return an id, empty if there is none."""
    value = given.get(name)
    if value is None:
        return ""
    if _ID.fullmatch(value) is None:
        reason = f"{name} can only include alphanumeric and punctuation characters. 1 to 128 in length."
        raise value_error(value, name, reason)
    return str(value)


def _check_fifo_entry(facts: QueueFacts, entry: Mapping[str, Any]) -> None:
    """Refuse a batch of which an entry for a FIFO queue has no group or no deduplication."""
    if "MessageGroupId" not in entry:
        raise invalid_value(missing("MessageGroupId").message)
    if "MessageDeduplicationId" not in entry and not facts.is_content_based:
        raise invalid_value(_NO_DEDUPLICATION)


def _deduplication_of(facts: QueueFacts, given: Mapping[str, Any], body: bytes) -> tuple[bytes | None, str | None]:
    """Return the key of a message, and the id to keep with it, empty if it is the hash of the body; None for none."""
    own = _checked_id(given, "MessageDeduplicationId")
    if not facts.is_fifo:
        if own:
            raise value_error(own, "MessageDeduplicationId", _WRONG_KIND)
        return None, None
    if "MessageGroupId" not in given:
        raise SqsError(MISSING_PARAMETER, missing("MessageGroupId").message)
    if own:
        return own.encode("ascii"), own
    if not facts.is_content_based:
        raise invalid_value(_NO_DEDUPLICATION)
    return sha256(body).hexdigest().encode("ascii"), ""
