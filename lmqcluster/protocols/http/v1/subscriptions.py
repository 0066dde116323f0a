"""The ``/v1/subscriptions`` routes: holders of batch leases, and the return of leases whose consumer is gone for good."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ....core import Role
from ....node.queues.sending.naming import no_subscription
from ..server.replies.common_replies import no_content
from ..server.replies.long_list import LongList, list_pieces
from ..server.replies.problem import on_error, refuse
from ..server.replies.streamed import streamed
from ..server.routing import Resource, Router
from .bodies.media import Media, reply_media

if TYPE_CHECKING:
    from ....node.node import Node
    from ....node.queues.batches.subscriptions import SubscriptionInfo
    from ..server.replies.reply import Reply
    from ..server.requests.request import Request
    from ..server.routing import Handler

__all__ = ["SubscriptionRoutes"]


class SubscriptionRoutes:
    """Routes that translate requests to the node's subscriptions."""

    def __init__(self, node: Node) -> None:
        self._service = node.service
        self._access = node.access

    def add_to(self, router: Router) -> None:
        """Register the routes."""
        one = "/v1/subscriptions/{name}"
        table: dict[str, dict[str, Handler]] = {
            "/v1/subscriptions": {"GET": self.list_all},
            one: {"GET": self.show, "DELETE": self.delete},
            f"{one}/abandon": {"POST": self.abandon},
        }
        for path, methods in table.items():
            router.add(path, Resource(methods, on_error, refuse(*methods)))

    async def list_all(self, request: Request) -> Reply:
        """Return all subscriptions by name."""
        media = reply_media(request)
        allows = request.principal.allows
        client = request.client(self._access)
        found = [one for one in await self._service.subscriptions.show_all(client) if allows(Role.READ, one.name)]
        rows = LongList("subscriptions", found, lambda one: _shown(one, media))
        return await streamed(media.head, list_pieces(media, rows, self._service.sender.turns, client))

    async def show(self, request: Request, name: bytes) -> Reply:
        """Return one subscription."""
        media = reply_media(request)
        return media.reply(_shown(await self._known(name), media))

    async def abandon(self, request: Request, name: bytes) -> Reply:
        """Put the messages of all batches of a subscription back into their queues."""
        await self._known(name)
        await self._service.subscriptions.take_back(name, request.principal.ends_of)
        return no_content()

    async def delete(self, request: Request, name: bytes) -> Reply:
        """Put the messages of all batches of a subscription back into their queues, and delete it."""
        if not await self._service.subscriptions.delete(name, request.principal.ends_of):
            raise no_subscription(name)
        return no_content()

    async def _known(self, name: bytes) -> SubscriptionInfo:
        found = await self._service.subscriptions.show(name)
        if found is None:
            raise no_subscription(name)
        return found


def _shown(info: SubscriptionInfo, media: Media) -> dict[str, Any]:
    return {
        "name": media.name(info.name),
        "owner": media.name(info.owner),
        "session": info.session,
        "settled": info.settled,
        "batches": [asdict(one) for one in info.batches],
    }
