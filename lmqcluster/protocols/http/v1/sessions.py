"""``/v1/sessions`` and ``/v1/locks``: state that a client holds until it frees it or its session expires."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ....node.queues.sending.times import WAIT_S_MAX
from ....node.queues.views.session_list import PAGE_MAX
from ....wire.errors import LmqError
from ....wire.limits import HTTP_PROPERTY_BYTES_MAX
from ..server.barrier_read import marked, refresh
from ..server.replies.problem import on_error, refuse
from ..server.requests.target import check_name
from ..server.routing import Resource, Router
from .bodies.media import read_value, reply_media
from .bodies.members import number_of, object_of, page_of, session_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ....node.node import Node
    from ..server.replies.reply import Reply
    from ..server.requests.request import Request
    from ..server.routing import Handler
    from ..server.waits import Waits

__all__ = ["SessionRoutes"]


class SessionRoutes:
    """Routes that translate requests to the node's sessions."""

    def __init__(self, node: Node, waits: Waits) -> None:
        self._service = node.service
        self._sessions = node.service.sessions
        self._list = node.service.session_list
        self._waits = waits

    def add_to(self, router: Router) -> None:
        """Register the routes."""
        for path, methods in self._table().items():
            router.add(path, Resource(methods, on_error, refuse(*methods)))

    def _table(self) -> Mapping[str, Mapping[str, Handler]]:
        return {
            "/v1/sessions": {"GET": self.list_all, "POST": self.open},
            "/v1/sessions/{id}": {"DELETE": self.end},
            "/v1/sessions/{id}/renew": {"POST": self.renew},
            "/v1/queues/{name}/leave": {"POST": self.leave},
            "/v1/locks": {"GET": self.list_locks},
            "/v1/locks/{name}": {"GET": self.show_lock, "POST": self.lock, "DELETE": self.unlock},
        }

    async def open(self, request: Request) -> Reply:
        """Begin a session."""
        body = await _body(request, {"ttl"})
        ttl_s = number_of(body.get("ttl"), "ttl")
        if ttl_s is None:
            raise LmqError("bad_request", "the body has no ttl, which is a number of seconds")
        session = await self._sessions.open(ttl_s, request.principal.owner)
        return reply_media(request).reply({"session": session.decode("ascii")})

    async def renew(self, request: Request, session: bytes) -> Reply:
        """Restart a session's time to live."""
        alive = await self._sessions.renew(session, request.principal.owner)
        return reply_media(request).reply({"alive": alive})

    async def end(self, request: Request, session: bytes) -> Reply:
        """End a session and free everything that it holds. Administrators may end sessions of others."""
        ended = await self._sessions.end(session, self._owner(request, session))
        return reply_media(request).reply({"ended": ended})

    async def leave(self, request: Request, name: bytes) -> Reply:
        """Give up the turn, or the place in line, at an exclusive queue."""
        check_name(name)
        session = session_of(await _body(request, {"session"}))
        left = await self._sessions.leave(name, session, request.principal.owner)
        return reply_media(request).reply({"left": left})

    async def lock(self, request: Request, name: bytes) -> Reply:
        """Acquire a lock, waiting for it in line."""
        check_name(name)
        body = await _body(request, {"session", "wait"})
        session, wait_s = session_of(body), number_of(body.get("wait"), "wait") or 0.0
        if not 0 <= wait_s <= WAIT_S_MAX:
            raise LmqError("bad_request", f"wait must be 0 to {WAIT_S_MAX} seconds, not {wait_s:g}")
        operation = self._sessions.lock(name, session, wait_s, request.principal.owner)
        token = await (self._waits.run(request.principal, operation, None) if wait_s else operation)
        return reply_media(request).reply({"token": token})

    async def unlock(self, request: Request, name: bytes) -> Reply:
        """Free a lock. Administrators may free it for sessions of others."""
        check_name(name)
        session = session_of(await _body(request, {"session"}))
        freed = await self._sessions.unlock(name, session, self._owner(request, session))
        return reply_media(request).reply({"freed": freed})

    def _owner(self, request: Request, session: bytes) -> bytes:
        """Return the owner for whom a session is freed: the session's owner if the client may do everything, else the client."""
        principal = request.principal
        owner = self._list.owner(session) if principal.is_root else None
        return principal.owner if owner is None else owner

    async def list_all(self, request: Request) -> Reply:
        """Return a page of the sessions."""
        offset, limit = page_of(request.parameters(), PAGE_MAX)
        media, stale = reply_media(request), await refresh(self._service)
        found, total = self._list.sessions(offset=offset, limit=limit)
        rows = [
            {**asdict(one), "session": one.session.decode("ascii"), "owner": media.name(one.owner)} for one in found
        ]
        return marked(media.reply({"sessions": rows, "total": total, "stale": stale}), stale=stale)

    async def list_locks(self, request: Request) -> Reply:
        """Return a page of the locks that are held."""
        offset, limit = page_of(request.parameters(), PAGE_MAX)
        media, stale = reply_media(request), await refresh(self._service)
        found, total = self._list.locks(offset=offset, limit=limit)
        rows = [{**asdict(one), "session": one.session.decode("ascii"), "name": media.name(one.name)} for one in found]
        return marked(media.reply({"locks": rows, "total": total, "stale": stale}), stale=stale)

    async def show_lock(self, request: Request, name: bytes) -> Reply:
        """Return whether a lock is held, and the number of sessions that wait for it."""
        check_name(name)
        stale = await refresh(self._service)
        token, waiting = self._sessions.lock_state(name)
        row = {"held": token is not None, "token": token, "waiting": waiting, "stale": stale}
        return marked(reply_media(request).reply(row), stale=stale)


async def _body(request: Request, known: set[str]) -> dict[str, Any]:
    return object_of(await read_value(request, HTTP_PROPERTY_BYTES_MAX), known)
