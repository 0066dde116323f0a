"""The HTTP server of one port: connects clients, requests and answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import cast

import structlog
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from ....ports import ConnectionSlot
from ....wire.errors import forget_frames
from .connection import IDLE_S, Connection
from .error_reply import refusal_of
from .replies.reply import Reply
from .requests.body import REQUEST_S
from .requests.request import Request

__all__ = ["HttpServer"]

_log = structlog.get_logger(__name__)


class HttpServer(web.Server):
    """Server of one port. Each client gets a `Connection`, each request a `Request`."""

    def __init__(
        self,
        handler: Callable[[Request], Awaitable[web.StreamResponse]],
        request_s: float = REQUEST_S,
        idle_s: float = IDLE_S,
    ) -> None:
        """Serve with this handler.

        `request_s` is the time in which a small request must arrive, `idle_s` that for which the connection of a known client
        may be idle.
        """
        super().__init__(
            cast("Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]", handler),
            request_factory=self._new_request,
            handler_cancellation=True,
        )
        self._request_s = request_s
        self._idle_s = idle_s

    def connect(self, place: ConnectionSlot) -> Connection:
        """Return the protocol of a new connection."""
        return Connection(self, place, _error_reply, loop=self._loop, idle_s=self._idle_s)

    def _new_request(self, message, payload, protocol, writer, task) -> Request:  # type: ignore[no-untyped-def]
        return Request(message, payload, protocol, writer, task, self._loop, request_s=self._request_s)


def _error_reply(request: web.BaseRequest, status: int, exc: BaseException | None, message: str | None) -> Reply:
    """Return an answer with an empty body that ends the connection."""
    head = b""
    if isinstance(exc, HttpProcessingError):
        status, head = refusal_of(exc)
        _log.debug("request refused", status=status, reason=message)
    else:
        # The path may contain a secret. The request log shows it without secrets.
        route = request.route if isinstance(request, Request) else ""
        _log.error("request failed", method=request.method, route=route, exc_info=exc)
    if exc is not None:
        forget_frames(exc)
    return Reply(status, head, close=True)
