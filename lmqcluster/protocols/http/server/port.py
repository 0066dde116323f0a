"""One port that speaks HTTP: start and stop, limits, authentication, and the choice of the route."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

import structlog
from aiohttp import hdrs

from ....node.access.tls import handshake
from ....ports import Listener
from ....wire.errors import LmqError, forget_frames
from .anonymous import AnonymousRequests
from .connection import HEADER_VALUE_BYTES_MAX, Connection
from .error_reply import REQUEST_LINE_BYTES_MAX
from .http_server import HttpServer
from .repeated_requests import NO_ANSWER, RepeatedRequests
from .replies.reply import Reply
from .requests.target import split_target
from .routing import KNOWN_METHODS, Router
from .waits import Waits

if TYPE_CHECKING:
    from ....node.access.access import Principal
    from ....node.node import Node
    from ....node.traces.traces import NodeTraces
    from ....ports import ConnectionLimiter, ConnectionSlot
    from .requests.request import Request
    from .routing import Resource

__all__ = ["HttpPort"]

_LINE_REST_BYTES = len("  HTTP/1.1")

_log = structlog.get_logger("lmq.requests")


class HttpPort(ABC):
    """Server of HTTP on one port of a node. The router defines the routes.

    Attributes:
        idle_s: how long the connection of a known client may be idle, in seconds.
        router: all routes.
        gate: the limits on the port's connections.
    """

    def __init__(
        self, node: Node, host: str, port: int, gate: ConnectionLimiter, protocol: str, router: Router
    ) -> None:
        """Prepare to listen on `host` and `port`; port 0 takes a free one. `protocol` is the name in metrics and logs."""
        self._host = host
        self._port = port
        self._protocol = protocol
        self._waits = Waits()
        self._access = node.access
        self._anonymous = AnonymousRequests(node.config)
        self._tls = node.tls
        self._front_ends = node.front_ends
        self.gate = gate
        self._traces = node.traces
        self._request_s = node.config.request_seconds_max
        self.idle_s: float = node.config.http_idle_seconds_max
        self.router = router
        self._server: HttpServer | None = None
        self._listener: Listener | None = None
        self._observed = node.observed
        self._observed.connections[protocol] = self._connections
        self._in_flight = 0
        self._logs_requests = node.config.request_log == "on"
        self._observed.in_flight[protocol] = lambda: self._in_flight + self._repeats.in_flight
        self._repeats = RepeatedRequests(node.service, node.access, self._repeated_ended)
        # Each request is logged, or charged to its client, in full.
        self._may_repeat = not self._logs_requests and not gate.bounds.requests_per_s
        node.membership.on_leave.append(self._end_connections)
        node.access.on_change.append(self._waits.end_revoked)

    @property
    def port(self) -> int:
        """Return the port number of the listener."""
        return self._port

    async def start(self) -> None:
        """Start listening.

        Raises:
            OSError: the address cannot be bound.
        """
        self._server = HttpServer(self._handle, self._request_s, self.idle_s)
        self._listener = Listener(self.gate, self._server.connect, handshake(self._tls), self._front_ends)
        self._port = await self._listener.start(self._host, self._port)

    def retire(self) -> None:
        """Stop listening. Requests that wait for a message are answered immediately, as if they had timed out."""
        if self._listener is None or self._server is None:
            return
        self._listener.close()
        self._server.pre_shutdown()
        self._waits.end()

    async def stop(self, grace_s: float) -> None:
        """Wait up to `grace_s` seconds for answers to requests in progress, then close the connections."""
        if self._listener is None or self._server is None:
            return
        # aiohttp grants the time twice: for the handler and for writing its answer.
        await self._server.shutdown(grace_s / 2)
        self._listener = None

    # --- what a port decides --------------------------------------------------------------------------------------

    @abstractmethod
    def _refused(self, request: Request, error: LmqError) -> Reply:
        """Return the answer to a request that an error keeps from reaching a resource."""

    @abstractmethod
    def _not_found(self, segments: list[bytes]) -> Reply:
        """Return the answer to a path that does not exist."""

    def _is_served_outside(self, target: str) -> bool:  # noqa: ARG002 - for those that serve something
        """Return whether a node outside a cluster serves this target."""
        return False

    def _split(self, target: str) -> tuple[list[bytes], str]:
        """Return the decoded segments of a request's path, and its query.

        Raises:
            LmqError: ``bad_request``.
        """
        return split_target(target)

    def _authenticate(self, value: bytes, place: ConnectionSlot) -> Principal:
        """Return the principal for the header ``Authorization``.

        Raises like `Access.authenticate`.
        """
        scheme, _space, secret = value.partition(b" ")
        if scheme.lower() != b"bearer":
            raise self._access.refusal("a token is sent as Authorization: Bearer TOKEN")
        return self._access.authenticate(secret.strip(), place)

    # --- requests -------------------------------------------------------------------------------------------------

    def _end_connections(self) -> None:
        """Close idle connections immediately, and the others after their current answer."""
        if self._server is not None:
            self._server.pre_shutdown()

    def _connections(self) -> int:
        return 0 if self._server is None else len(self._server.connections)

    async def _handle(self, request: Request) -> Reply:
        traces = self._traces
        reply = await self._observe(request, self._answer(request) if traces is None else self._traced(request, traces))
        connection = request.protocol
        if isinstance(connection, Connection):
            if connection.count_answer():
                reply.force_close()
            follows = reply.keep_alive and request.keep_alive and request.version.minor > 0
            if follows and self._may_repeat and not connection.has_more:
                self._offer_repeats(connection, request, reply)
        return reply

    async def _observe(self, request: Request, answering: Coroutine[Any, Any, Reply]) -> Reply:
        """Return the answer to a request; note its status and duration."""
        began_s = time.monotonic()
        self._in_flight += 1
        status = NO_ANSWER
        try:
            reply = await answering
            status = reply.status
        finally:
            self._in_flight -= 1
            self._note(request, status, time.monotonic() - began_s)
        return reply

    def _offer_repeats(self, connection: Connection, request: Request, reply: Reply) -> None:
        """Permit a connection to repeat a request that was answered, if it may."""
        if reply.repeatable is not None:
            self._repeats.offer(connection, reply.repeatable, request.principal, self._operation(request))

    async def _traced(self, request: Request, traces: NodeTraces) -> Reply:
        """Answer a request, in a span if it carries a sampled trace."""
        method = request.method if request.method in KNOWN_METHODS else "_OTHER"
        served = traces.begin(request.trace().get("traceparent"), method)
        if served is None:
            return await self._answer(request)
        status = 0
        try:
            reply = await self._answer(request)
            status = reply.status
        finally:
            traces.end(served, method, request.route, status)
        return reply

    def _repeated_ended(self, operation: str, status: int, seconds: float, count: int) -> None:
        self._observed.request_done(self._protocol, operation, str(status), seconds, count)

    def _shown_path(self, request: Request) -> str:
        """Return the path for the log, without the query, which may contain private data."""
        return request.raw_path.partition("?")[0]

    def _code(self, request: Request, status: int) -> str:  # noqa: ARG002 - some ports have other codes than the status
        """Return the code of an answer in metrics."""
        return str(status)

    def _logged(self, request: Request) -> dict[str, str]:  # noqa: ARG002 - for ports whose paths do not say it all
        """Return further fields for the log of requests."""
        return {}

    def _operation(self, request: Request) -> str:
        """Return the name of a request's operation in metrics."""
        method = request.method if request.method in KNOWN_METHODS else "other"
        return f"{method} {request.route or 'unknown'}"

    def _note(self, request: Request, status: int, seconds: float) -> None:
        self._observed.request_done(self._protocol, self._operation(request), self._code(request, status), seconds)
        if self._logs_requests:
            _log.info(
                "request",
                protocol=self._protocol,
                method=request.method,
                path=self._shown_path(request),
                status=status,
                seconds=round(seconds, 6),
                client=request.remote,
                **self._logged(request),
            )

    async def _answer(self, request: Request) -> Reply:
        target = request.raw_path
        if len(request.method) + len(target) + _LINE_REST_BYTES > REQUEST_LINE_BYTES_MAX:
            return Reply(414, close=True)
        for _name, value in request.raw_headers:
            if len(value) > HEADER_VALUE_BYTES_MAX:
                return Reply(400, close=True)
        try:
            segments, request.raw_query = self._split(target)
        except LmqError as exc:
            return self._refusal(request, exc)
        resource, values = self.router.find(segments)
        if resource is not None:
            request.route = resource.path
        if self.gate.bounds.requests_per_s and (wait_s := self._take(request)):
            error = LmqError("throttled", "this address sends more requests a second than it may; wait a little")
            reply = self._refused(request, error)
            reply.head += b"retry-after: %d\r\n" % math.ceil(wait_s)
            return reply
        if resource is None or not resource.is_open_to(request.method):
            try:
                if self._access.outside is not None and not self._is_served_outside(target):
                    raise self._access.outside.again()
                request.principal = self._principal(request)
                if isinstance(request.protocol, Connection):
                    self._admit(request, request.protocol, resource)
            except LmqError as exc:
                reply = self._refusal(request, exc, resource)
                if exc.code in ("throttled", "overloaded"):
                    reply.head += b"retry-after: 1\r\n"
                return reply
        else:
            # An open route serves every client, but may show more to a known one.
            with contextlib.suppress(LmqError):
                request.principal = self._principal(request)
        if resource is not None:
            return await resource.answer(request, values)
        return self._not_found(segments)

    def _admit(self, request: Request, connection: Connection, resource: Resource | None) -> None:
        """Admit a client that has authenticated.

        Raises:
            LmqError: ``overloaded``: the port, or the client, has reached its maximum number of connections.
        """
        place = connection.place
        is_administrative = resource is not None and resource.is_administrative(request.method)
        if not place.admit(spare=is_administrative):
            reason = "too many connections to this port are open; use those that you have, or another node"
            raise LmqError("overloaded", reason)
        place.user = request.principal.name

    def _refusal(self, request: Request, error: LmqError, resource: Resource | None = None) -> Reply:
        reply = self._refused(request, error) if resource is None else resource.refused(request, error)
        forget_frames(error)
        return reply

    def _take(self, request: Request) -> float:
        """Charge the client for a request; return 0, or the seconds that it has to wait."""
        connection = request.protocol
        if not isinstance(connection, Connection):
            return 0.0
        return connection.place.client.requests.take(asyncio.get_running_loop().time())

    def _principal(self, request: Request) -> Principal:
        """Return the principal of a request.

        Raises:
            LmqError: ``unauthorized``, ``unknown_host``, ``foreign_origin``, or ``no_leader`` if the tokens are not
                known yet.
        """
        connection = request.protocol
        if self._access.anonymous is not None and isinstance(connection, Connection) and connection.is_local:
            self._anonymous.check(request)
            return self._access.anonymous
        value = request.raw_header(hdrs.AUTHORIZATION)
        if value is None:
            raise self._access.refusal()
        return self._authenticate(value, request.place)
