"""``POST /v1/transactions``: several operations in one step, all or none of them."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ....core import Role
from ....core.handlers.transactions import OPERATIONS_MAX
from ....node.queues.pushes.transactions import AckStep, ExtendStep, NackStep, PushStep
from ....node.queues.sending.push_items import Stored
from ....wire.errors import LmqError
from ....wire.limits import REQUEST_BYTES_MAX
from ....wire.trace_context import with_trace
from ..server.replies.problem import on_error, refuse
from ..server.requests.target import check_name
from ..server.routing import Resource, Router
from .bodies.media import content_of, read_value, reply_media
from .bodies.members import list_of, number_of, object_of, place_of, reason_of, text_of
from .bodies.message_items import MEMBERS, item_of
from .bodies.results import pushed

if TYPE_CHECKING:
    from ....node.node import Node
    from ....node.queues.pushes.transactions import Step
    from ..server.replies.reply import Reply
    from ..server.requests.request import Request

__all__ = ["TransactionRoutes"]

_ID_BYTES_MAX = 64
_MORE = {"push": MEMBERS, "ack": {"id"}, "nack": {"id", "place", "delay", "reason"}, "extend": {"id", "lease"}}
"""Members of each operation in addition to its name and its queue."""
_STEPS_PER_TURN = 500


class TransactionRoutes:
    """Route that translates requests to the node's transactions."""

    def __init__(self, node: Node) -> None:
        self._service = node.service
        self._message_bytes_max = node.config.message_bytes_max
        self._attribute_bytes_max = node.config.attribute_bytes_max

    def add_to(self, router: Router) -> None:
        """Register the route."""
        router.add("/v1/transactions", Resource({"POST": self.run}, on_error, refuse("POST")))

    async def run(self, request: Request) -> Reply:
        """Carry out all operations, or none of them."""
        base_key = request.idempotency_key()
        body = object_of(await read_value(request, REQUEST_BYTES_MAX), {"operations"})
        trace = request.trace()
        steps: list[Step] = []
        for place, value in enumerate(list_of(body, "operations", OPERATIONS_MAX)):
            if place % _STEPS_PER_TURN == _STEPS_PER_TURN - 1:
                await asyncio.sleep(0)
            step = await self._step(value, f"operations[{place}]")
            request.principal.require(Role.WRITE, step.queue)
            if isinstance(step, PushStep) and step.item.key is None and base_key is not None:
                step = replace(step, item=step.item._replace(key=b"%b:%d" % (base_key, place)))
            if trace and isinstance(step, PushStep):
                attributes = with_trace(step.item.attributes, trace, self._attribute_bytes_max)
                step = replace(step, item=step.item._replace(attributes=attributes))
            steps.append(step)
        done = await self._service.transaction(steps, request.principal.owner) if steps else []
        shown = [pushed(one) if isinstance(one, Stored) else {"done": one} for one in done]
        return reply_media(request).reply({"results": shown})

    async def _step(self, value: Any, where: str) -> Step:
        verb = value.get("op") if isinstance(value, dict) else None
        if not isinstance(verb, str) or verb not in _MORE:
            raise LmqError("bad_request", f"{where}.op must be one of {', '.join(_MORE)}")
        members = object_of(value, {"op", "queue", *_MORE[verb]}, where)
        if "queue" not in members:
            raise LmqError("bad_request", f"{where} names no queue")
        queue = check_name(content_of(members["queue"], f"{where}.queue"))
        if verb == "push":
            message = {name: member for name, member in members.items() if name in MEMBERS}
            return PushStep(queue, await item_of(message, where, self._message_bytes_max, self._attribute_bytes_max))
        receipt = text_of(members.get("id"), f"{where}.id", _ID_BYTES_MAX)
        if receipt is None:
            raise LmqError("bad_request", f"{where} has no id")
        if verb == "ack":
            return AckStep(queue, receipt)
        if verb == "extend":
            return ExtendStep(queue, receipt, number_of(members.get("lease"), f"{where}.lease"))
        delay_s = number_of(members.get("delay"), f"{where}.delay")
        return NackStep(queue, receipt, place_of(members, where), delay_s, reason_of(members, where))
