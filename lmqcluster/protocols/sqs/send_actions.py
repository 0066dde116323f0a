"""Actions that send messages."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b, md5, sha256
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from aiohttp import web

from ...core import PushFlag
from ...node.queues.sending.push_items import PushItem, PushOptions, refusal_of
from ...wire.attributes import pack_attributes
from .attempts import invocation_of
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
    from .shapes import Parameters

__all__ = ["SENDER", "BegunSend", "Results", "SendActions", "Sender"]

Results = list[tuple[int, int]]
"""Flag and sequence of each message; the sequence is 0 if the queue refuses it."""

_TEXT: Final = b"text/plain; charset=utf-8"
_ID: Final = re.compile(r"[!-~]{1,128}")
_TRACE: Final = "X-Amzn-Trace-Id"
_BATCH: Final = "SendMessageBatch"
_DIGEST_BYTES: Final = 16
_WRONG_KIND: Final = "The request include parameter that is not valid for this queue type."
_NO_DEDUPLICATION: Final = (
    "The queue should either have ContentBasedDeduplication enabled or MessageDeduplicationId provided explicitly"
)
_NO_ATTRIBUTES: Final[Mapping[str, Any]] = {}


class Sender(NamedTuple):
    """The sender of a request's messages, as its head shows it.

    Attributes:
        action: ``SendMessage`` or ``SendMessageBatch``.
        queue: name of the queue.
        owner: owner of the client's attempts.
        trace: the trace header, None if there is none.
        invocation: see `invocation_of`.
    """

    action: str
    queue: bytes
    owner: bytes
    trace: str | None
    invocation: bytes | None

    @classmethod
    def of(cls, call: Call) -> Sender:
        """Return that of a request."""
        request = call.request
        return cls(
            call.action, call.queue, request.principal.owner, request.headers.get(_TRACE), invocation_of(request)
        )


class BegunSend(NamedTuple):
    """A send that has begun.

    Attributes:
        outcome: future of the flag and the sequence of each message.
        output: makes the answer from them; raises `LmqError` if it is an error.
    """

    outcome: asyncio.Future[Results]
    output: Callable[[Results], Output]


SENDER: Final = web.RequestKey("sqs_sender", Sender)
"""Key under which a request that has sent messages, and that others may repeat, holds its sender."""


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
        return {"SendMessage": self.send, _BATCH: self.send}

    async def send(self, call: Call) -> Output:
        """Store a message or a batch."""
        facts, sender = await self._tools.existing(call.queue), Sender.of(call)
        begun = self.begin(facts, sender, call.parameters)
        output = begun.output(await begun.outcome)
        if sender.trace is None:
            call.request[SENDER] = sender
        return output

    def begin(self, facts: QueueFacts, sender: Sender, given: Parameters) -> BegunSend:
        """Begin to store the message, or the batch, of a request.

        Raises:
            LmqError: the request is wrong, or like `AttemptedPushes.push`.
        """
        if sender.action == _BATCH:
            return self._begin_batch(facts, sender, given)
        outgoing = self._checked(facts, given, sender, 0)

        def output(results: Results) -> Output:
            ((flag, sequence),) = results
            if flag >= PushFlag.FULL:
                raise refusal_of(facts.name, flag)
            return self._result_of(facts, outgoing, sequence)

        return BegunSend(self._push(facts, [outgoing.item], sender.owner), output)

    def _begin_batch(self, facts: QueueFacts, sender: Sender, given: Parameters) -> BegunSend:
        """Begin to store messages in their order; those that fail a check, or that the queue refuses, are left out.

        A FIFO queue stores all that pass the checks, or none.
        """
        limits = self._tools.limits
        entries = entries_of(sender.action, given, limits.entries)
        size = sum(_size_of(entry) for entry in entries)
        if size > limits.batch_bytes:
            text = f"Batch requests cannot be longer than {limits.batch_bytes} bytes. You have sent {size} bytes."
            raise SqsError(BATCH_TOO_LONG, text)
        if facts.is_fifo:
            for entry in entries:
                _check_fifo_entry(facts, entry)
        passed: list[tuple[Entry, _Outgoing]] = []
        failed: list[Output] = []
        for place, entry in enumerate(entries):
            try:
                passed.append((entry, self._checked(facts, entry, sender, place)))
            except SqsError as exc:
                failed.append(outcome_of(entry, exc))

        def output(results: Results) -> Output:
            successful: list[Output] = []
            for (entry, outgoing), (flag, sequence) in zip(passed, results, strict=True):
                if flag >= PushFlag.FULL:
                    failed.append(outcome_of(entry, as_sqs(refusal_of(facts.name, flag))))
                else:
                    successful.append({"Id": entry["Id"], **self._result_of(facts, outgoing, sequence)})
            return batch_output(successful, failed)

        return BegunSend(self._push(facts, [outgoing.item for _entry, outgoing in passed], sender.owner), output)

    def _push(self, facts: QueueFacts, items: Sequence[PushItem], owner: bytes) -> asyncio.Future[Results]:
        """Store messages, of which each is stored once however often the SDK repeats its request.

        Messages of a FIFO queue have their own ids for that.
        """
        if not items:
            nothing: asyncio.Future[Results] = asyncio.get_running_loop().create_future()
            nothing.set_result([])
            return nothing
        if facts.is_fifo:
            return asyncio.ensure_future(self._push_to_fifo(facts.name, items, owner))
        return self._tools.service.attempts.push(facts.name, items, owner)

    async def _push_to_fifo(self, queue: bytes, items: Sequence[PushItem], owner: bytes) -> Results:
        pushed = await self._tools.service.push(queue, items, owner, tells_sequence=True, must_exist=True)
        return [(one.flag, one.sequence or 0) for one in pushed]

    def _result_of(self, facts: QueueFacts, outgoing: _Outgoing, sequence: int) -> Output:
        answer: Output = {"MessageId": self._tools.receipts.message_id(sequence), **outgoing.answer}
        if facts.is_fifo:
            answer["SequenceNumber"] = f"{sequence:020d}"
        return answer

    def _checked(self, facts: QueueFacts, given: Mapping[str, Any], sender: Sender, place: int) -> _Outgoing:
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
        trace = sender.trace
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
        if sender.invocation is not None and not facts.is_fifo:
            key = _attempt(sender.invocation, body, packed, place)
        item = PushItem(body, _TEXT, packed, key, options)
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


def _attempt(invocation: bytes, body: bytes, attributes: bytes, place: int) -> bytes:
    """Return what names a message in the repetitions of its request: another body is another message."""
    digest = blake2b(body, digest_size=_DIGEST_BYTES)
    digest.update(b"%d" % len(body))
    digest.update(attributes)
    return b"%b %d %b" % (invocation, place, digest.digest())


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
