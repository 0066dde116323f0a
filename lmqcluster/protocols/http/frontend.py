"""The HTTP front end: LMQ's routes, the ``/v1`` routes and health, on one port."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from typing import TYPE_CHECKING

import structlog
from aiohttp import hdrs

from ...node.access.tls import handshake
from ...ports import Listener
from ...wire.errors import LmqError
from .console import ConsoleRoutes
from .lmq import errors as lmq_errors
from .lmq.messages import MessageRoutes
from .lmq.properties import PropertyRoutes
from .lmq.stats import StatsRoute
from .metrics_routes import MetricsRoutes
from .openapi.route import OpenapiRoute
from .server import problem
from .server.anonymous import AnonymousRequests
from .server.connection import HEADER_VALUE_BYTES_MAX, REQUEST_LINE_BYTES_MAX, Connection, HttpServer
from .server.reply import REQUESTS_PER_CONNECTION_MAX, Reply
from .server.routing import KNOWN_METHODS, Router
from .server.target import split_target
from .server.waits import Waits
from .v1.cluster import ClusterRoutes
from .v1.log_level import LogLevelRoute
from .v1.operations import QueueOperationRoutes
from .v1.overview import OverviewRoutes
from .v1.queues import QueueRoutes
from .v1.subscriptions import SubscriptionRoutes
from .v1.tokens import TokenRoutes
from .v1.transactions import TransactionRoutes

if TYPE_CHECKING:
    from ...node.access.access import Principal
    from ...node.node import Node
    from .server.request import Request

__all__ = ["HttpFrontEnd"]

_SERVED_OUTSIDE = ("/v1/cluster", "/v1/overview", "/v1/log-level", "/metrics", "/console")
"""What a node that belongs to no cluster still answers: questions about itself, and how to let it join one."""
_PROTOCOL = "http"
_LINE_REST_BYTES = len("  HTTP/1.1")

_log = structlog.get_logger("lmq.requests")


class HttpFrontEnd:
    """Serves HTTP for one node.

    Attributes:
        router: all routes.
        gate: what the port takes.
    """

    def __init__(self, node: Node, host: str, port: int) -> None:
        """Prepare to listen on `host` and `port`; port 0 takes a free one."""
        self._host = host
        self._port = port
        self._waits = Waits()
        self._access = node.access
        self._anonymous = AnonymousRequests(node.config)
        self._tls = node.tls
        config = node.config
        self.gate = node.gates.http
        self._request_s = config.request_seconds_max
        self.router = Router()
        MessageRoutes(node, self._waits).add_to(self.router)
        PropertyRoutes(node).add_to(self.router)
        StatsRoute(node).add_to(self.router)
        QueueRoutes(node, self._waits).add_to(self.router)
        QueueOperationRoutes(node).add_to(self.router)
        TransactionRoutes(node).add_to(self.router)
        SubscriptionRoutes(node).add_to(self.router)
        ClusterRoutes(node).add_to(self.router)
        OpenapiRoute().add_to(self.router)
        TokenRoutes(node).add_to(self.router)
        MetricsRoutes(node).add_to(self.router)
        OverviewRoutes(node).add_to(self.router)
        ConsoleRoutes().add_to(self.router)
        LogLevelRoute().add_to(self.router)
        self._server: HttpServer | None = None
        self._listener: Listener | None = None
        self._observed = node.observed
        self._observed.connections[_PROTOCOL] = self._connections
        self._in_flight = 0
        self._logs_requests = node.config.request_log == "on"
        self._observed.in_flight[_PROTOCOL] = lambda: self._in_flight
        node.membership.on_leave.append(self._end_connections)
        node.access.on_change.append(self._waits.end_revoked)

    @property
    def port(self) -> int:
        """The port that is listened on."""
        return self._port

    async def start(self) -> None:
        """Start to listen.

        Raises:
            OSError: the address cannot be listened on.
        """
        self._server = HttpServer(self._handle, self._request_s)
        self._listener = Listener(self.gate, self._server.connect, handshake(self._tls))
        self._port = await self._listener.start(self._host, self._port)

    def retire(self) -> None:
        """Stop listening; requests that wait for a message are answered at once, as if their time were up."""
        if self._listener is None or self._server is None:
            return
        self._listener.close()
        self._server.pre_shutdown()
        self._waits.end()

    async def stop(self, grace_s: float) -> None:
        """Let requests under way be answered for up to `grace_s`, then close the connections."""
        if self._listener is None or self._server is None:
            return
        # aiohttp grants the time once for the handler and once for writing its answer.
        await self._server.shutdown(grace_s / 2)
        self._listener = None

    def _end_connections(self) -> None:
        """Close idle connections, and the others when they have been answered."""
        if self._server is not None:
            self._server.pre_shutdown()

    def _connections(self) -> int:
        return 0 if self._server is None else len(self._server.connections)

    async def _handle(self, request: Request) -> Reply:
        began_s = time.monotonic()
        self._in_flight += 1
        status = 499  # of a client that is gone before its answer, as web servers log it
        try:
            reply = await self._answer(request)
            status = reply.status
        finally:
            self._in_flight -= 1
            self._note(request, status, time.monotonic() - began_s)
        connection = request.protocol
        if isinstance(connection, Connection):
            connection.served += 1
            if connection.served >= REQUESTS_PER_CONNECTION_MAX:
                reply.force_close()
        return reply

    def _note(self, request: Request, status: int, seconds: float) -> None:
        method = request.method if request.method in KNOWN_METHODS else "other"
        self._observed.request_done(_PROTOCOL, f"{method} {request.route or 'unknown'}", str(status), seconds)
        if self._logs_requests:
            # Queries may hold what is nobody's business.
            path = request.raw_path.partition("?")[0]
            _log.info(
                "request",
                protocol=_PROTOCOL,
                method=request.method,
                path=path,
                status=status,
                seconds=round(seconds, 6),
                client=request.remote,
            )

    async def _answer(self, request: Request) -> Reply:
        target = request.raw_path
        if len(request.method) + len(target) + _LINE_REST_BYTES > REQUEST_LINE_BYTES_MAX:
            return Reply(414, close=True)
        for _name, value in request.raw_headers:
            if len(value) > HEADER_VALUE_BYTES_MAX:
                return Reply(400, close=True)
        try:
            segments, request.raw_query = split_target(target)
        except LmqError as exc:
            return problem.on_error(exc) if target.startswith("/v1/") else lmq_errors.on_error(exc)
        resource, values = self.router.find(segments)
        if resource is not None:
            request.route = resource.path
        if self.gate.bounds.requests_per_s and (wait_s := self._take(request)):
            return _throttled(wait_s, target)
        if resource is None or not resource.is_open_to(request.method):
            try:
                if self._access.outside is not None and not target.startswith(_SERVED_OUTSIDE):
                    raise self._access.outside
                request.principal = self._principal(request)
                if isinstance(request.protocol, Connection):
                    request.protocol.place.admit()
            except LmqError as exc:
                if resource is not None:
                    return resource.on_error(exc)
                return problem.on_error(exc) if target.startswith("/v1/") else lmq_errors.on_error(exc)
        else:
            # Nobody is refused here; who is known may be told more.
            with contextlib.suppress(LmqError):
                request.principal = self._principal(request)
        if resource is not None:
            return await resource.answer(request, values)
        return problem.route_not_found() if segments[:1] == [b"v1"] else Reply(404)

    def _take(self, request: Request) -> float:
        """Charge the client for a request; returns 0, or the seconds that it has to wait."""
        connection = request.protocol
        if not isinstance(connection, Connection):
            return 0.0
        return connection.place.client.take(asyncio.get_running_loop().time())

    def _principal(self, request: Request) -> Principal:
        """Who asks.

        Raises:
            LmqError: ``unauthorized``, ``unknown_host``, ``foreign_origin``, or ``no_leader`` if that cannot be known yet.
        """
        connection = request.protocol
        if self._access.anonymous is not None and isinstance(connection, Connection) and connection.is_local:
            self._anonymous.check(request)
            return self._access.anonymous
        value = request.raw_header(hdrs.AUTHORIZATION)
        if value is None:
            raise self._access.refusal()
        scheme, _space, secret = value.partition(b" ")
        if scheme.lower() != b"bearer":
            raise self._access.refusal("a token is sent as Authorization: Bearer TOKEN")
        return self._access.authenticate(secret.strip())


def _throttled(wait_s: float, target: str) -> Reply:
    """429: the client sends more than it may."""
    error = LmqError("throttled", "this address sends more requests a second than it may; wait a little")
    reply = problem.on_error(error) if target.startswith("/v1/") else lmq_errors.on_error(error)
    reply.head += b"retry-after: %d\r\n" % math.ceil(wait_s)
    return reply
