"""Routes of queues: create, delete, list; suspension, throttles; API keys."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ...node.access.access import SECRET_BYTES_MIN, digest_of
from ...wire.errors import LmqError
from ..http.server.replies.long_list import LongList, list_pieces
from ..http.server.replies.streamed import streamed
from .media import NOTHING, QueuedError, read_object, reply_media
from .members import number_of, object_of, text_of
from .names import checked
from .resource import resource

if TYPE_CHECKING:
    from ...node.node import Node
    from ..http.server.replies.reply import Reply
    from ..http.server.requests.request import Request
    from ..http.server.routing import Router

__all__ = ["QueueRoutes"]

_ENDPOINTS = ("delete", "poll", "push", "update")
_POLLS_MAX = (1 << 62) - 1
_WINDOW_S_MAX = 1 << 39
_KEY_BYTES_MAX = _PREFIX_BYTES_MAX = 255
_DIGEST = re.compile(rb"sha256:([0-9a-f]{64})")
"""Name under which a key is listed and can be given. The cluster does not store the key itself."""


class QueueRoutes:
    """Routes that translate queue requests to the node's service."""

    def __init__(self, node: Node) -> None:
        self._service = node.service
        self._polled = node.service.polled
        self._access = node.access

    def add_to(self, router: Router) -> None:
        """Register the routes."""
        router.add("/queues", resource({"GET": self.list}))
        router.add("/queue/{name}", resource({"PUT": self.create, "DELETE": self.delete}))
        for path in ("/queue/{name}", ""):
            router.add(f"{path}/suspend", resource({"GET": self.suspension, "POST": self.suspend}))
            router.add(f"{path}/throttle", resource({"GET": self.throttle, "POST": self.set_throttle}))
        router.add("/api-keys", resource({"GET": self.keys}))
        router.add("/api-key/{key}", resource({"PUT": self.set_key, "DELETE": self.delete_key}))

    async def create(self, request: Request, name: bytes) -> Reply:
        """Create an empty queue."""
        if not await self._polled.create(checked(name), request.principal.owner):
            raise QueuedError(409, "QueueAlreadyExists")
        return reply_media(request).reply(NOTHING)

    async def delete(self, request: Request, name: bytes) -> Reply:
        """Delete a queue with all its messages."""
        if not await self._service.delete(checked(name)):
            raise QueuedError(404, "NotFound")
        return reply_media(request).reply(NOTHING)

    async def list(self, request: Request) -> Reply:
        """Return the names of all queues that the client may see."""
        await self._service.sender.look_up()
        media, covers, client = reply_media(request), request.principal.covers, request.client(self._access)
        names = [one.name async for one in self._service.each_queue(client) if covers(one.name)]
        rows = LongList("queues", names, lambda name: {"name": media.text(name)})
        return await streamed(media.head, list_pieces(media, rows, self._service.sender.turns, client))

    # --- limits ---------------------------------------------------------------------------------------------------

    async def suspension(self, request: Request, name: bytes = b"") -> Reply:
        """Return the suspended kinds of requests."""
        return reply_media(request).reply((await self._polled.limits(_subject(request, name))).suspended)

    async def suspend(self, request: Request, name: bytes = b"") -> Reply:
        """Suspend or resume kinds of requests."""
        queue = _subject(request, name)
        body = await read_object(request)
        switches = {endpoint: body.get(endpoint) for endpoint in _ENDPOINTS}
        for endpoint, value in switches.items():
            if type(value) not in (bool, type(None)):
                raise LmqError("bad_request", f"{endpoint} must be true, false or null")
        return reply_media(request).reply(await self._polled.suspend(queue, switches))

    async def throttle(self, request: Request, name: bytes = b"") -> Reply:
        """Return the limit on polls."""
        return reply_media(request).reply(
            _throttle_shown((await self._polled.limits(_subject(request, name))).throttle)
        )

    async def set_throttle(self, request: Request, name: bytes = b"") -> Reply:
        """Set or remove the limit on polls."""
        queue = _subject(request, name)
        given = (await read_object(request)).get("throttle")
        throttle: tuple[int, int] | None = None
        if given is not None:
            setting = object_of(given, "throttle")
            throttle = (
                number_of(setting, "max_polls_per_time_window", 0, _POLLS_MAX),
                number_of(setting, "time_window_sec", 1, _WINDOW_S_MAX),
            )
        await self._polled.throttle(queue, throttle)
        return reply_media(request).reply(_throttle_shown(throttle))

    # --- API keys -------------------------------------------------------------------------------------------------

    async def keys(self, request: Request) -> Reply:
        """Return all API keys, each by its digest."""
        self._check_keys()
        media, keys = reply_media(request), await self._polled.api_keys()
        rows = [{"key": f"sha256:{digest.hex()}", "prefix": media.text(prefix)} for digest, prefix in keys]
        return media.reply({"keys": rows})

    async def set_key(self, request: Request, key: bytes) -> Reply:
        """Add an API key, or change its prefix."""
        self._check_keys()
        prefix = text_of(await read_object(request), "prefix")
        if not SECRET_BYTES_MIN <= len(key) <= _KEY_BYTES_MAX:
            text = f"an API key has {SECRET_BYTES_MIN} to {_KEY_BYTES_MAX} bytes: a short one can be guessed"
            raise LmqError("bad_request", text)
        if len(prefix) > _PREFIX_BYTES_MAX:
            raise LmqError("bad_request", f"the prefix of an API key has at most {_PREFIX_BYTES_MAX} bytes")
        await self._polled.set_api_key(_digest_of(key), prefix)
        return reply_media(request).reply(NOTHING)

    async def delete_key(self, request: Request, key: bytes) -> Reply:
        """Delete an API key."""
        self._check_keys()
        if not await self._polled.delete_api_key(_digest_of(key)):
            raise QueuedError(404, "NotFound")
        return reply_media(request).reply(NOTHING)

    def _check_keys(self) -> None:
        """Refuse requests about API keys while no token is required, because then a key opens nothing."""
        if self._access.anonymous is not None:
            raise QueuedError(404, "NotFound")


def _digest_of(key: bytes) -> bytes:
    listed = _DIGEST.fullmatch(key)
    return digest_of(key) if listed is None else bytes.fromhex(listed[1].decode())


def _subject(request: Request, name: bytes) -> bytes:
    """Return the queue that a request is about; empty for all queues."""
    return checked(name) if request.route.startswith("/queue/") else b""


def _throttle_shown(throttle: tuple[int, int] | None) -> dict[str, Any]:
    if throttle is None:
        return {"throttle": None}
    polls, seconds = throttle
    return {"throttle": {"max_polls_per_time_window": polls, "time_window_sec": seconds}}
