"""Actions on tasks that move dead letters back."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from ...core import Role
from ...node.queues.views.listing import each_queue
from ...wire.errors import LmqError
from .errors import QUEUE_MISSING, RESOURCE_NOT_FOUND, SqsError, invalid_value, missing, value_error
from .names import arn_queue
from .queue_facts import QueueFacts

if TYPE_CHECKING:
    from ...node.queues.move_tasks import MoveTaskInfo
    from .call import Action, Call, Tools
    from .rendering import Output

__all__ = ["MoveActions"]

_RATE_MAX: Final = 500
_LISTED_MAX: Final = 10
_RUNNING: Final = "RUNNING"
_HANDLE_CHARACTERS_MAX: Final = 1024
_NUMBER_MAX: Final = (1 << 63) - 1
_FAILURES: Final = {"queue_not_found": QUEUE_MISSING.code}


class MoveActions:
    """The actions."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools
        self._service = tools.service
        self._tasks = tools.service.move_tasks

    def table(self) -> Mapping[str, Action]:
        """Return the actions by name."""
        return {
            "StartMessageMoveTask": self.start,
            "CancelMessageMoveTask": self.cancel,
            "ListMessageMoveTasks": self.list,
        }

    async def start(self, call: Call) -> Output:
        """Start to move the messages of a queue for dead letters."""
        rate = call.get("MaxNumberOfMessagesPerSecond", None)
        if rate is not None and not 1 <= rate <= _RATE_MAX:
            reason = f"The value must be between 1 and {_RATE_MAX}."
            raise value_error(rate, "MaxNumberOfMessagesPerSecond", reason)
        source = await self._existing(call.queue, "SourceArn")
        given = call.text("DestinationArn")
        destination = arn_queue(given, "DestinationArn") if given else None
        principal, client = call.request.principal, call.request.client(self._tools.access)
        if destination is not None:
            principal.require(Role.WRITE, destination)
            target = await self._existing(destination, "DestinationArn")
            if destination == call.queue:
                raise invalid_value("Source queue arn and destination queue arn cannot be the same.")
            if target.is_fifo is not source.is_fifo:
                raise invalid_value("The source queue and destination queue must be of the same queue type.")
        if not await self._is_target(call.queue, client):
            raise invalid_value("Source queue must be configured as a Dead Letter Queue.")
        try:
            number = await self._tasks.start(call.queue, destination, rate=rate, principal=principal, client=client)
        except LmqError as exc:
            if exc.code != "conflict":
                raise
            text = "There is already a task running. Only one active task is allowed for a source queue arn at a given time."
            raise invalid_value(text) from exc
        return {"TaskHandle": _handle(call.queue, number)}

    async def _existing(self, queue: bytes, parameter: str) -> QueueFacts:
        await self._service.sender.look_up()
        facts = self._tools.known(queue)
        if facts is None:
            text = f"The resource that you specified for the {parameter} parameter doesn't exist."
            raise SqsError(RESOURCE_NOT_FOUND, text)
        return facts

    async def _is_target(self, name: bytes, client: bytes) -> bool:
        """Return whether some queue sends its dead letters to this one."""
        sender = self._service.sender
        async for queue in each_queue(sender.state, sender.turns, client):
            if QueueFacts(queue).dead_letters == name:
                return True
        return False

    async def cancel(self, call: Call) -> Output:
        """Cancel a running task."""
        queue, number = _named(call)
        call.request.principal.require(Role.ADMIN, queue)
        await self._existing(queue, "SourceArn")
        try:
            moved = await self._tasks.cancel(queue, number)
        except LmqError as exc:
            if exc.code != "task_not_found":
                raise
            raise SqsError(RESOURCE_NOT_FOUND, "Task does not exist.") from exc
        return {"ApproximateNumberOfMessagesMoved": moved}

    async def list(self, call: Call) -> Output:
        """Return the latest tasks of a queue, the newest first."""
        count = call.get("MaxResults", 1)
        if not 1 <= count <= _LISTED_MAX:
            raise value_error(count, "MaxResults", f"MaxResults must be between 1 and {_LISTED_MAX}")
        await self._existing(call.queue, "SourceArn")
        tasks = await self._tasks.list(call.queue, call.request.principal)
        shown = [self._shown(call, task) for task in tasks[:count]]
        return {"Results": shown} if shown else {}

    def _shown(self, call: Call, task: MoveTaskInfo) -> Output:
        names, request = self._tools.names, call.request
        shown: Output = {"TaskHandle": _handle(task.source, task.number)} if task.status == _RUNNING else {}
        shown |= {"Status": task.status, "SourceArn": names.arn(request, task.source)}
        if task.destination is not None:
            shown["DestinationArn"] = names.arn(request, task.destination)
        if task.rate is not None:
            shown["MaxNumberOfMessagesPerSecond"] = task.rate
        shown["ApproximateNumberOfMessagesMoved"] = task.moved
        shown["ApproximateNumberOfMessagesToMove"] = task.to_move
        if task.failure is not None:
            shown["FailureReason"] = _FAILURES.get(task.failure, task.failure)
        shown["StartedTimestamp"] = task.started_us // 1000
        return shown


def _handle(queue: bytes, number: int) -> str:
    """Return the handle of a task, which names its queue too."""
    packed = json.dumps([number, queue.decode("utf-8", "surrogateescape")]).encode()
    return base64.urlsafe_b64encode(packed).decode("ascii")


def _named(call: Call) -> tuple[bytes, int]:
    """Return the queue and the number of the task that a request names.

    Raises:
        SqsError: ``MissingParameter``, ``InvalidParameterValue``.
    """
    handle = call.text("TaskHandle")
    if not handle:
        raise missing("TaskHandle")
    try:
        packed = base64.b64decode(handle, b"-_", validate=True) if len(handle) <= _HANDLE_CHARACTERS_MAX else b""
        match json.loads(packed):
            case [int(number), str(name)] if 0 <= number <= _NUMBER_MAX:
                return name.encode("utf-8", "surrogateescape"), number
    except (binascii.Error, ValueError, RecursionError):
        pass
    raise invalid_value("Value for parameter TaskHandle is invalid.")
