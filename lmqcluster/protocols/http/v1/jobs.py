"""The ``/v1/jobs`` routes: the cluster's records of writers that store exactly once, and their deletion."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ....wire.errors import LmqError
from ..server.replies.common_replies import no_content
from ..server.replies.long_list import LongList, list_pieces
from ..server.replies.problem import on_error, refuse
from ..server.replies.streamed import streamed
from ..server.routing import Resource, Router
from .bodies.media import Media, reply_media

if TYPE_CHECKING:
    from ....node.node import Node
    from ....node.queues.pushes.jobs import JobInfo
    from ..server.replies.reply import Reply
    from ..server.requests.request import Request
    from ..server.routing import Handler

__all__ = ["JobRoutes"]


class JobRoutes:
    """Routes that translate requests to the node's jobs."""

    def __init__(self, node: Node) -> None:
        self._service = node.service
        self._access = node.access

    def add_to(self, router: Router) -> None:
        """Register the routes."""
        table: dict[str, dict[str, Handler]] = {
            "/v1/jobs": {"GET": self.list_all},
            "/v1/jobs/{name}": {"DELETE": self.delete},
        }
        for path, methods in table.items():
            router.add(path, Resource(methods, on_error, refuse(*methods)))

    async def list_all(self, request: Request) -> Reply:
        """Return the client's jobs, or all jobs if the client may do everything."""
        media, client, principal = reply_media(request), request.client(self._access), request.principal
        found = await self._service.jobs.show(None if principal.is_root else principal.owner, client)
        rows = LongList("jobs", found, lambda one: _shown(one, media))
        return await streamed(media.head, list_pieces(media, rows, self._service.sender.turns, client))

    async def delete(self, request: Request, name: bytes) -> Reply:
        """Delete one of the client's jobs, or one of the owner that the query names."""
        principal = request.principal
        asked = request.parameters().get(b"owner")
        owner = principal.owner if asked is None else asked
        if owner != principal.owner and not principal.is_root:
            raise LmqError("forbidden", f"token {principal.name!r} may end its own jobs only")
        if not await self._service.jobs.end([name], owner):
            raise LmqError("job_not_found", f"there is no job {name.decode(errors='backslashreplace')!r} of this owner")
        return no_content()


def _shown(info: JobInfo, media: Media) -> dict[str, Any]:
    return {**asdict(info), "owner": media.name(info.owner), "name": media.name(info.name)}
