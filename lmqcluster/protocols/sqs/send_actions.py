"""Actions that send messages."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from hashlib import blake2b, md5, sha256
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ...node.queues.sending.push_items import PushItem, PushOptions
from ...wire.attributes import pack_attributes
from .attempts import invocation_of
from .batches import batch_output, entries_of, outcome_of
from .errors import BATCH_TOO_LONG, MISSING_PARAMETER, SqsError, invalid_value, missing, value_error
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
    from ...node.queues.sending.push_items import Stored
    from .call import Action, Call, Tools
    from .queue_facts import QueueFacts
    from .rendering import Output

__all__ = ["SendActions"]

_TEXT: Final = b"text/plain; charset=utf-8"
_ID: Final = re.compile(r"[!-~]{1,128}")
_TRACE: Final = "X-Amzn-Trace-Id"
_DIGEST_BYTES: Final = 16
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
        outgoing = self._checked(facts, call.parameters, call.request.headers.get(_TRACE))
        (result,) = await self._push(call, facts, [outgoing.item], [0])
        return self._result_of(facts, outgoing, result)

    async def send_batch(self, call: Call) -> Output:
        """Store messages in one command, in their order; those that fail a check are left out."""
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
        trace = call.request.headers.get(_TRACE)
        passed: list[tuple[int, _Outgoing]] = []
        failed: list[Output] = []
        for place, entry in enumerate(entries):
            try:
                passed.append((place, self._checked(facts, entry, trace)))
            except SqsError as exc:
                failed.append(outcome_of(entry, exc))
        items, places = [outgoing.item for _place, outgoing in passed], [place for place, _outgoing in passed]
        results = await self._push(call, facts, items, places) if items else []
        successful = [
            {"Id": entries[place]["Id"], **self._result_of(facts, outgoing, result)}
            for (place, outgoing), result in zip(passed, results, strict=True)
        ]
        return batch_output(successful, failed)

    async def _push(
        self, call: Call, facts: QueueFacts, items: Sequence[PushItem], places: Sequence[int]
    ) -> list[Stored]:
        """Store messages, of which each is stored once however often the SDK repeats its request.

        Messages of a FIFO queue have their own ids for that.
        """
        request = call.request
        invocation = None if facts.is_fifo else invocation_of(request)
        attempts: list[bytes] = []
        if invocation is not None:
            attempts = [_attempt(invocation, item, place) for item, place in zip(items, places, strict=True)]
        return await self._tools.service.push(
            call.queue, items, request.principal.owner, tells_sequence=True, must_exist=True, attempts=attempts
        )

    def _result_of(self, facts: QueueFacts, outgoing: _Outgoing, result: Stored) -> Output:
        sequence = result.sequence or 0
        answer: Output = {"MessageId": self._tools.receipts.message_id(sequence), **outgoing.answer}
        if facts.is_fifo:
            answer["SequenceNumber"] = f"{sequence:020d}"
        return answer

    def _checked(self, facts: QueueFacts, given: Mapping[str, Any], trace: str | None) -> _Outgoing:
        """Return a message that a client sends.

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
        own_trace = checked_trace(given.get("MessageSystemAttributes", _NO_ATTRIBUTES))
        if own_trace is not None:
            answer["MD5OfMessageSystemAttributes"] = md5_of({TRACE_HEADER: Attribute("String", own_trace)})
            trace = own_trace
        delay_s = self._delay_s(facts, given.get("DelaySeconds"))
        group = _group_of(given)
        key, deduplication = _deduplication_of(facts, given, body)
        values = stored(attributes, trace, deduplication) if attributes or trace or deduplication is not None else None
        options = PushOptions(delay_s=delay_s, group=group) if group or delay_s is not None else None
        item = PushItem(body, _TEXT, pack_attributes(values), key, options)
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


def _attempt(invocation: bytes, item: PushItem, place: int) -> bytes:
    """Return what names a message in the repetitions of its request: another body is another message."""
    digest = blake2b(item.content, digest_size=_DIGEST_BYTES)
    digest.update(b"%d" % len(item.content))
    digest.update(item.attributes)
    return b"%b %d %b" % (invocation, place, digest.digest())


def _size_of(entry: Mapping[str, Any]) -> int:
    body = entry.get("MessageBody", "").encode("utf-8", "surrogatepass")
    return len(body) + size_of(entry.get("MessageAttributes", _NO_ATTRIBUTES))


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
