"""Actions that receive messages, and that settle what was received."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from ...core.log.results import TagState
from ...node.queues.polls import PollAttempt
from ...wire.errors import LmqError
from .attempts import REMEMBERED_US
from .batches import batch_output, entries_of, outcome_of
from .errors import SqsError, missing, queue_missing, value_error
from .received import Received
from .rendering import TURN_BYTES

if TYPE_CHECKING:
    from ...node.queues.polls import Polled
    from .call import Action, Call, Tools
    from .queue_facts import QueueFacts
    from .receipts import Receipt
    from .rendering import Output

__all__ = ["ReceiveActions"]

_TOLERANCE_S: Final = 60
"""Seconds by which a message may become visible later than the longest time after its receive."""
_MESSAGE_BYTES: Final = 2048
"""Bytes of a body that take as long to render as the rest of a message."""
_EXPIRED: Final = "The receipt handle has expired."
_GONE: Final = "Message does not exist or is not available for visibility timeout change."
_ATTEMPT: Final = re.compile(r"[!-~]{1,128}")


class ReceiveActions:
    """The actions."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools
        self._polled = tools.polled

    def table(self) -> Mapping[str, Action]:
        """Return the actions by name."""
        return {
            "ReceiveMessage": self.receive,
            "DeleteMessage": self.delete,
            "DeleteMessageBatch": self.delete_batch,
            "ChangeMessageVisibility": self.change,
            "ChangeMessageVisibilityBatch": self.change_batch,
        }

    # --- receiving ------------------------------------------------------------------------------------------------

    async def receive(self, call: Call) -> Output:
        """Take messages and hide them."""
        facts = await self._tools.existing(call.queue)
        polled = await self._poll(call, facts)
        if not polled:
            return {}
        try:
            received = Received(self._tools, call, facts)
            messages: list[Output] = []
            since_turn = 0
            for one in polled:
                if since_turn > TURN_BYTES:
                    since_turn = 0
                    await asyncio.sleep(0)
                messages.append(received.message(one))
                since_turn += _MESSAGE_BYTES + len(one.delivery.attributes) + len(messages[-1]["Body"])
        except BaseException:
            self._polled.put_back(polled)
            raise
        return {"Messages": messages}

    async def _poll(self, call: Call, facts: QueueFacts) -> list[Polled]:
        limits, request = self._tools.limits, call.request
        reason = f"Must be between 1 and {limits.messages}, if provided."
        count = _within(call, "MaxNumberOfMessages", 1, limits.messages, reason)
        reason = f"Must be >= 0 and <= {limits.visibility_s}, if provided."
        hide_s = _within(call, "VisibilityTimeout", 0, limits.visibility_s, reason)
        reason = f"Must be >= 0 and <= {limits.wait_s}, if provided."
        wait_s = _within(call, "WaitTimeSeconds", 0, limits.wait_s, reason)
        attempt = _attempt_of(call, facts)
        ended = self._tools.service.events.end(call.queue)
        operation = self._polled.poll(
            call.queue,
            count=1 if count is None else count,
            hide_s=facts.timeout_s if hide_s is None else hide_s,
            wait_s=float(facts.wait_s if wait_s is None else wait_s),
            has_room=request.has_room,
            until=ended,
            attempt=attempt,
        )
        try:
            polled = await self._tools.waits.run(request.principal, operation, [])
        except LmqError as exc:
            # A queue whose receives are suspended seems to be empty.
            if exc.code != "suspended":
                raise
            return []
        finally:
            is_gone = ended.done() and not ended.cancelled()
            ended.cancel()
        if not polled and is_gone and self._tools.known(call.queue) is None:
            raise queue_missing()
        return polled

    # --- deleting -------------------------------------------------------------------------------------------------

    async def delete(self, call: Call) -> None:
        """Delete a message, unless another client has received it since."""
        await self._tools.existing(call.queue)
        receipt = self._tools.receipts.parse(call.queue, call.text("ReceiptHandle"))
        (state,) = await self._polled.delete(call.queue, [(receipt.message, receipt.tag)])
        if state is TagState.EXPIRED:
            raise value_error(call.text("ReceiptHandle"), "ReceiptHandle", _EXPIRED)

    async def delete_batch(self, call: Call) -> Output:
        """Delete messages in one command."""
        await self._tools.existing(call.queue)
        receipts, failed = self._receipts(call)
        pairs = [(receipt.message, receipt.tag) for _entry, receipt in receipts]
        states = await self._polled.delete(call.queue, pairs) if pairs else []
        successful: list[Output] = []
        for (entry, _receipt), state in zip(receipts, states, strict=True):
            if state is TagState.EXPIRED:
                failed.append(outcome_of(entry, value_error(entry["ReceiptHandle"], "ReceiptHandle", _EXPIRED)))
            else:
                successful.append({"Id": entry["Id"]})
        return batch_output(successful, failed)

    def _receipts(self, call: Call) -> tuple[list[tuple[Mapping[str, Any], Receipt]], list[Output]]:
        """Return the entries of a batch with their receipts, and the rows of those whose receipts are invalid."""
        found: list[tuple[Mapping[str, Any], Receipt]] = []
        failed: list[Output] = []
        for entry in entries_of(call, self._tools.limits.entries):
            try:
                found.append((entry, self._tools.receipts.parse(call.queue, entry.get("ReceiptHandle"))))
            except SqsError as exc:
                failed.append(outcome_of(entry, exc))
        return found, failed

    # --- visibility -----------------------------------------------------------------------------------------------

    async def change(self, call: Call) -> None:
        """Hide a received message for a time from now, under the same receipt."""
        await self._tools.existing(call.queue)
        handle = call.text("ReceiptHandle")
        receipt = self._tools.receipts.parse(call.queue, handle)
        await self._change(call.queue, receipt, call.parameters)

    async def change_batch(self, call: Call) -> Output:
        """Hide received messages."""
        await self._tools.existing(call.queue)
        receipts, failed = self._receipts(call)
        changes = [self._change_entry(call.queue, receipt, entry) for entry, receipt in receipts]
        outcomes = await asyncio.gather(*changes)
        successful = [
            {"Id": entry["Id"]} for (entry, _), outcome in zip(receipts, outcomes, strict=True) if outcome is None
        ]
        failed += [outcome for outcome in outcomes if outcome is not None]
        return batch_output(successful, failed)

    async def _change_entry(self, queue: bytes, receipt: Receipt, entry: Mapping[str, Any]) -> Output | None:
        """Change the visibility of an entry of a batch; return its row if it fails, else None."""
        try:
            await self._change(queue, receipt, entry)
        except SqsError as exc:
            return outcome_of(entry, exc)
        return None

    async def _change(self, queue: bytes, receipt: Receipt, given: Mapping[str, Any]) -> None:
        hide_s, handle = given.get("VisibilityTimeout"), given["ReceiptHandle"]
        limits = self._tools.limits
        if hide_s is None:
            raise missing("VisibilityTimeout")
        if not 0 <= hide_s <= limits.visibility_s:
            reason = f"VisibilityTimeout must be an integer between 0 and {limits.visibility_s}"
            raise value_error(hide_s, "VisibilityTimeout", reason)
        if limits.visible_after_s is not None:
            visible_s = self._tools.now_us() // 1_000_000 + hide_s
            if hide_s and visible_s > receipt.received_s + limits.visible_after_s + _TOLERANCE_S:
                reason = (
                    f"Total VisibilityTimeout for the message is beyond the limit [{limits.visible_after_s} seconds]"
                )
                raise value_error(hide_s, "VisibilityTimeout", reason)
        state, _tag = await self._polled.update(queue, receipt.message, receipt.tag, hide_s, keeps_tag=True)
        if state is not TagState.VALID:
            raise value_error(handle, "ReceiptHandle", _EXPIRED if state is TagState.EXPIRED else _GONE)


def _within(call: Call, name: str, low: int, high: int, reason: str) -> int | None:
    """Return a number in a range, None if it is missing.

    Raises:
        SqsError: ``InvalidParameterValue``.
    """
    value: int | None = call.get(name, None)
    if value is not None and not low <= value <= high:
        raise value_error(value, name, reason)
    return value


def _attempt_of(call: Call, facts: QueueFacts) -> PollAttempt | None:
    """Return the name of a receive, by which a repetition gets the same messages; None if it has none.

    Raises:
        SqsError: ``InvalidParameterValue``.
    """
    owner, own = call.request.principal.owner, call.text("ReceiveRequestAttemptId")
    if own is not None and _ATTEMPT.fullmatch(own) is None:
        reason = "ReceiveRequestAttemptId can only include alphanumeric and punctuation characters. 1 to 128 in length."
        raise value_error(own, "ReceiveRequestAttemptId", reason)
    if own is not None and facts.is_fifo:
        return PollAttempt(owner, b"own " + own.encode("ascii"), REMEMBERED_US)
    return None if call.invocation is None else PollAttempt(owner, b"sdk " + call.invocation, REMEMBERED_US)
