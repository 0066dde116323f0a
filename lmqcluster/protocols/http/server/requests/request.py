"""A request as the routes see it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from aiohttp import hdrs, web

from .....node.access.access import UNKNOWN_CLIENT, Access, Principal
from .....node.access.clients import client_of
from .....wire.attributes import TRACE_ATTRIBUTES
from .....wire.errors import LmqError
from .....wire.trace_context import trace_attributes
from .body import BodyReader
from .target import Query

if TYPE_CHECKING:
    import asyncio

    from aiohttp.abc import AbstractStreamWriter
    from aiohttp.http_parser import RawRequestMessage
    from aiohttp.streams import StreamReader
    from aiohttp.web_protocol import RequestHandler

    from .....ports import ConnectionSlot
    from ..connection import Connection

__all__ = ["Request", "overload"]

KEY_BYTES_MAX = 255
_IDEMPOTENCY_KEY = "Idempotency-Key"
_TRACEPARENT, _TRACESTATE = TRACE_ATTRIBUTES


def overload() -> LmqError:
    """Return the error for a client that has used up its share of the node's memory."""
    text = "unfinished requests and unread answers fill this client's share of the node's memory; read them, then try again"
    return LmqError("overloaded", text)


class Request(web.BaseRequest):
    """An HTTP request with its raw query string and a bounded body.

    Attributes:
        raw_query: the undecoded query string; set by the port.
        route: the path of its resource, such as ``/messages/{name}``; set by the port, empty for an unknown path.
        principal: the principal of the client; set by the port.
    """

    ATTRS = web.BaseRequest.ATTRS | frozenset(("_request_s", "principal", "raw_query", "route"))

    def __init__(
        self,
        message: RawRequestMessage,
        payload: StreamReader,
        protocol: RequestHandler,
        writer: AbstractStreamWriter,
        task: asyncio.Task[None],
        loop: asyncio.AbstractEventLoop,
        *,
        request_s: float,
        **kwargs: Any,
    ) -> None:
        super().__init__(message, payload, protocol, writer, task, loop, **kwargs)
        self.raw_query = ""
        self.route = ""
        self.principal: Principal = UNKNOWN_CLIENT
        self._request_s = request_s

    def parameters(self) -> Query:
        """Return the query parameters.

        Raises:
            LmqError: ``bad_request`` for an invalid escape.
        """
        return Query(self.raw_query)

    async def read_body(self, bytes_max: int) -> bytes:
        """Return the whole body; see `BodyReader.read`."""
        return await BodyReader(self, self.hold, self._request_s).read(bytes_max)

    def client(self, access: Access) -> bytes:
        """Return the name of the client whose share of the node the request uses."""
        name = None if self.transport is None else self.transport.get_extra_info("peername")
        return client_of(access, self.principal, f"{name[0]}:{name[1]}" if isinstance(name, tuple) else "")

    @property
    def place(self) -> ConnectionSlot:
        """Return the slot of the connection in the limits of its port."""
        return cast("Connection", self.protocol).place

    def has_room(self, size_bytes: int) -> bool:
        """Count this many bytes for the request and its answer, and return True, if the client's share of memory allows it.

        The count ends when the client has read the answer.
        """
        return cast("Connection", self.protocol).hold(size_bytes)

    def hold(self, size_bytes: int) -> None:
        """Count this many bytes, like `has_room`, but raise if there is no room.

        Raises:
            LmqError: ``overloaded`` if there is no room.
        """
        if not self.has_room(size_bytes):
            raise overload()

    def raw_header(self, name: str) -> bytes | None:
        """Return the bytes of a header, or None if it is absent."""
        value = self._headers.get(name)
        return None if value is None else value.encode("utf-8", "surrogateescape")

    def trace(self) -> dict[str, str]:
        """Return the attributes that the headers ``traceparent`` and ``tracestate`` become; empty without a valid trace."""
        headers = self._headers
        if _TRACEPARENT not in headers:
            return {}
        return trace_attributes(headers.getall(_TRACEPARENT), headers.getall(_TRACESTATE, ()))

    def media_type(self) -> str:
        """Return the content type without parameters, in lower case; empty if there is none."""
        return self._headers.get(hdrs.CONTENT_TYPE, "").partition(";")[0].strip().lower()

    def idempotency_key(self) -> bytes | None:
        """Return the value of ``Idempotency-Key``, without the quotes that the draft standard puts around it.

        Raises:
            LmqError: ``bad_request`` for an empty or over-long key.
        """
        value = self.raw_header(_IDEMPOTENCY_KEY)
        if value is None:
            return None
        key = value[1:-1] if len(value) > 1 and value.startswith(b'"') and value.endswith(b'"') else value
        if not 0 < len(key) <= KEY_BYTES_MAX:
            raise LmqError("bad_request", f"an Idempotency-Key has 1 to {KEY_BYTES_MAX} bytes, this one has {len(key)}")
        return key
