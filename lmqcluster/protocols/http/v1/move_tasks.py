"""``/v1/queues/{name}/move-tasks``: tasks of the cluster that move the messages of a queue, such as dead letters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....core.routing.move_tasks import RATE_MAX
from ....wire.errors import LmqError
from ....wire.limits import HTTP_PROPERTY_BYTES_MAX
from ..server.barrier_read import marked, not_found, refresh
from ..server.replies.problem import on_error, refuse
from ..server.requests.target import check_name
from ..server.routing import Resource, Router
from .bodies.media import read_value, reply_media
from .bodies.members import object_of, other_queue, whole_member

if TYPE_CHECKING:
    from ....node.node import Node
    from ..server.replies.reply import Reply
    from ..server.requests.request import Request
    from ..server.routing import Handler

__all__ = ["MoveTaskRoutes"]

_NUMBER_DIGITS_MAX = 18


class MoveTaskRoutes:
    """Routes that translate requests to the node's tasks."""

    def __init__(self, node: Node) -> None:
        self._access = node.access
        self._service = node.service
        self._tasks = node.service.move_tasks

    def add_to(self, router: Router) -> None:
        """Register the routes."""
        table: dict[str, dict[str, Handler]] = {
            "/v1/queues/{name}/move-tasks": {"GET": self.list, "POST": self.start},
            "/v1/queues/{name}/move-tasks/{number}": {"DELETE": self.cancel},
        }
        for path, methods in table.items():
            router.add(path, Resource(methods, on_error, refuse(*methods)))

    async def start(self, request: Request, name: bytes) -> Reply:
        """Start to move the messages of the queue to another one, or back to where they came from."""
        check_name(name)
        body = object_of(await read_value(request, HTTP_PROPERTY_BYTES_MAX), {"to", "rate"})
        destination = other_queue(request, body, "to") if "to" in body else None
        rate = whole_member(body["rate"], "rate", 1, RATE_MAX) if "rate" in body else None
        client = request.client(self._access)
        number = await self._tasks.start(name, destination, rate=rate, principal=request.principal, client=client)
        return reply_media(request).reply({"number": number})

    async def list(self, request: Request, name: bytes) -> Reply:
        """Return the latest tasks of the queue, the newest first."""
        check_name(name)
        stale = await refresh(self._service)
        if self._service.queue(name) is None:
            raise not_found(name, stale=stale)
        media = reply_media(request)
        rows = []
        for task in self._tasks.known(name, request.principal):
            row = task.row()
            if task.destination is not None:
                row["to"] = media.name(task.destination)
            rows.append(row)
        return marked(media.reply({"tasks": rows, "stale": stale}), stale=stale)

    async def cancel(self, request: Request, name: bytes, number: bytes) -> Reply:
        """Cancel a running task."""
        check_name(name)
        if not number.isdigit() or len(number) > _NUMBER_DIGITS_MAX:
            raise LmqError("task_not_found", f"the number of a task has 1 to {_NUMBER_DIGITS_MAX} digits")
        return reply_media(request).reply({"moved": await self._tasks.cancel(name, int(number))})
