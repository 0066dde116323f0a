"""The port for clients of SQS: the form of a request, its client, its action, and the answer."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

import structlog
from aiohttp import web

from ...core import Role
from ...node.access.access import UNKNOWN_CLIENT
from ...wire.errors import LmqError, forget_frames
from ...wire.head_patterns import HeadPattern
from ...wire.repeated_sends import RepeatedSend, is_plain_send
from ..http.server.connection import Connection
from ..http.server.port import HttpPort
from ..http.server.replies.reply import Reply
from ..http.server.requests.target import split_target
from ..http.server.routing import Resource, Router
from .actions import actions_of
from .attempts import invocation_of
from .call import Call, Tools, subject_of
from .codec import Codec
from .errors import INTERNAL_FAILURE, SqsError, as_sqs
from .form import parse_form
from .json_codec import JSON_TYPE, TARGET, TARGET_PREFIX, JsonCodec, json_refusal
from .permissions import PERMISSIONS
from .query_codec import FORM_TYPE, QueryCodec
from .repeated_calls import RepeatedCall
from .repeated_sends import RepeatedSends, SendsObserver
from .request_ids import new_id
from .send_actions import SEND_ACTIONS
from .shapes import SHAPES
from .signature import Claim, Head, Signatures

if TYPE_CHECKING:
    from ...node.access.access import Principal
    from ...node.node import Node
    from ..http.server.requests.request import Request

__all__ = ["SqsPort"]

log = structlog.get_logger("lmq.sqs")

IDLE_S: Final = 120.0
"""Time in seconds for which the connection of a known client may be idle: SDKs keep theirs for up to 90."""
_READER_BYTES_MAX: Final = 256 * 1024
"""Most bytes of a request by a client that may only read."""
_UNKNOWN: Final = "unknown"
_NOTHING: Final = b"<UnknownOperationException/>"
_CODE: Final = web.RequestKey("sqs_code", str)
"""Key under which a request holds the code of its error, which is empty if it has none."""
_SENT: Final = web.RequestKey("sqs_sent", Call)
"""Key under which a request holds its call if that is a send that has nothing but bodies."""
_CLAIM: Final = web.RequestKey("sqs_claim", Claim)
"""Key under which a request holds its signature."""


class SqsPort(HttpPort):
    """Port that serves clients of SQS for one node."""

    def __init__(self, node: Node, host: str, port: int) -> None:
        """Prepare to listen on `host` and `port`; port 0 takes a free one."""
        super().__init__(node, host, port, node.gates.sqs, "sqs", _OneRoute(self))
        self.idle_s = max(IDLE_S, self.idle_s)
        self._signatures = Signatures(node.access, is_encrypted=node.tls is not None)
        self._tools = Tools(node, self._waits)
        self._actions = actions_of(self._tools)

    # --- one request ----------------------------------------------------------------------------------------------

    async def serve(self, request: Request) -> Reply:
        """Return the answer to a request whose client may be known from its head only."""
        request.route = _UNKNOWN
        return await self._carried_out(request, invocation_of(request))

    async def _carried_out(self, request: Request, invocation: bytes | None, codec: Codec | None = None) -> Reply:
        """Return the answer to a request of this invocation; its body is read and verified unless its form is given."""
        request_id = new_id()
        try:
            if codec is None:
                body = await self._body(request)
                codec = None if body is None else await _codec_of(request, body)
            if codec is None:
                return Reply(404, b"content-type: text/xml\r\n" + _id_line(request_id), _NOTHING)
            request.route = action = codec.action()
            parameters = await codec.parameters()
            call = Call(request, action, parameters, subject_of(parameters, SHAPES[action][0].name), invocation)
            request.principal.demand(PERMISSIONS[action], call.queue)
            if action in SEND_ACTIONS and is_plain_send(parameters):
                request[_SENT] = call
            return await codec.answer(await self._actions[action](call), request_id)
        except LmqError as exc:
            return self._error_reply(request, exc, codec, request_id)
        except Exception as exc:
            log.exception("request failed", action=request.route)
            forget_frames(exc)
            return self._error_reply(
                request, SqsError(INTERNAL_FAILURE, "An internal error occurred."), codec, request_id
            )

    def _body_bytes_max(self, principal: Principal) -> int:
        most = self._tools.limits.request_bytes
        return most if principal.allows_role(Role.WRITE) else min(most, _READER_BYTES_MAX)

    async def _body(self, request: Request) -> bytes | None:
        """Return the body of a request after a check of its signature; None if it has no form, with or without one."""
        if not _has_form(request):
            return None
        body = await request.read_body(self._body_bytes_max(request.principal))
        claim = request.get(_CLAIM)
        if claim is not None:
            request.principal = self._signatures.verify(claim, body)
            if isinstance(request.protocol, Connection):
                super()._admit(request, request.protocol, self.router.find([])[0])
        return body

    def _error_reply(self, request: Request, error: LmqError, codec: Codec | None, request_id: str) -> Reply:
        shown = as_sqs(error)
        request[_CODE] = shown.kind.code
        reply = _refusal(request, shown, codec, request_id)
        forget_frames(error)
        forget_frames(shown)
        return reply

    # --- repeated requests ----------------------------------------------------------------------------------------

    def _offer_repeats(self, connection: Connection, request: Request, reply: Reply) -> None:
        claim, principal = request.get(_CLAIM), request.principal
        is_offered = reply.status == 200 and _is_json(request)
        pattern = HeadPattern.of(connection.head, None if claim is None else claim.head()) if is_offered else None
        if pattern is None:
            return
        is_allowed = partial(self._repeats.is_allowed, principal, is_anonymous=principal is self._access.anonymous)
        if request.get(_SENT) is not None:
            self._offer_sends(connection, request, is_allowed)
        signed = None if claim is None else (claim, self._signatures)
        repeated = RepeatedCall(connection, pattern, signed, is_allowed, partial(self._repeat, connection, request))
        connection.remember(repeated, request.route)

    def _offer_sends(self, connection: Connection, request: Request, is_allowed: Callable[[], bool]) -> None:
        """Permit a connection to repeat a send that has nothing but bodies."""
        call, claim = request[_SENT], request.get(_CLAIM)
        url = call.needed("QueueUrl")
        entries_max = self._tools.limits.entries if "Entries" in call.parameters else 0
        if claim is None:
            pattern = RepeatedSend(connection.head, url, entries_max)
        else:
            key = self._signatures.key_of(claim)
            if key is None:
                return
            pattern = RepeatedSend(connection.head, url, entries_max, claim.head(), key, claim.payload)
        observer = SendsObserver(self._sends_begun, partial(self._sends_ended, call.action))
        make = partial(RepeatedSends, self._tools, call.queue, request.principal.owner, is_allowed, observer)
        identity = "sqs", call.action, call.queue, request.principal
        self._repeats.groups.offer(connection, f"{call.action} without options", identity, pattern, make)

    def _sends_begun(self, count: int) -> None:
        self._in_flight += count

    def _sends_ended(self, action: str, code: str, seconds: float, count: int) -> None:
        self._in_flight -= count
        self._observed.request_done(self._protocol, action, code, seconds, count)

    async def _repeat(self, connection: Connection, request: Request, body: bytes, invocation: bytes | None) -> bool:
        """Answer a repetition of a request; return whether its connection stays open."""
        request[_CODE] = ""
        codec = JsonCodec(request, body, request.route)
        reply = await self._observe(request, self._carried_out(request, invocation, codec))
        if connection.count_answer():
            reply.force_close()
        await reply.prepare(request)
        return reply.keep_alive

    # --- what the server asks -------------------------------------------------------------------------------------

    def _split(self, target: str) -> tuple[list[bytes], str]:
        # A plus sign in a path is no space, and an odd path is no error: the parameters name the queue.
        _path, mark, query = target.partition("?")
        return split_target("/" + mark + query)

    def _principal(self, request: Request) -> Principal:
        """Return the principal of a request: the one whose key the head names, if it needs a signature."""
        connection = request.protocol
        if self._access.anonymous is not None and isinstance(connection, Connection) and connection.is_local:
            return super()._principal(request)
        if not _has_form(request):
            return UNKNOWN_CLIENT
        path, _mark, query = request.raw_path.partition("?")
        head = Head(request.method, path, query, request.raw_headers)
        claim = request[_CLAIM] = self._signatures.recognize(head, time.time())
        return claim.principal

    def _admit(self, request: Request, connection: Connection, resource: Resource | None) -> None:
        # Who signs a request is known when its body has arrived.
        if request.principal is self._access.anonymous:
            super()._admit(request, connection, resource)

    def refuse(self, request: Request, error: LmqError) -> Reply:
        """Return the answer to a request that is refused before it is read."""
        return self._error_reply(request, error, None, new_id())

    def _refused(self, request: Request, error: LmqError) -> Reply:
        return self.refuse(request, error)

    def _not_found(self, segments: list[bytes]) -> Reply:  # noqa: ARG002 - every path is found
        return Reply(404)

    def _operation(self, request: Request) -> str:
        return request.route or _UNKNOWN

    def _code(self, request: Request, status: int) -> str:
        return request.get(_CODE) or str(status)

    def _logged(self, request: Request) -> dict[str, str]:
        code = request.get(_CODE)
        return {"action": self._operation(request)} | ({"code": code} if code else {})


class _OneRoute(Router):
    """Router that finds the same resource for all paths."""

    def __init__(self, port: SqsPort) -> None:
        super().__init__(lambda _path: {})
        self._resource = _Actions({}, lambda error: Reply(error.spec.http), Reply, port=port)

    def find(self, segments: list[bytes]) -> tuple[Resource | None, list[bytes]]:  # noqa: ARG002 - whatever the path
        """Return the resource."""
        return self._resource, []


@dataclass(frozen=True, slots=True)
class _Actions(Resource):
    """The actions, which check their permissions themselves."""

    port: SqsPort = field(kw_only=True)

    async def answer(self, request: Request, values: list[bytes]) -> Reply:  # noqa: ARG002 - there are none
        """Return the answer to a request."""
        return await self.port.serve(request)

    def refused(self, request: Request, error: LmqError) -> Reply:
        """Return the answer to a request that is refused before it is read."""
        return self.port.refuse(request, error)


def _is_json(request: Request) -> bool:
    return request.headers.get(TARGET, "").startswith(TARGET_PREFIX) and request.media_type() == JSON_TYPE


def _has_form(request: Request) -> bool:
    """Return whether a request may be one, as far as its head shows."""
    if request.method == "POST":
        return _is_json(request) or request.media_type() == FORM_TYPE
    return request.method == "GET" and _has_action(request.raw_query)


def _has_action(query: str) -> bool:
    return query.startswith("Action=") or "&Action=" in query


async def _codec_of(request: Request, body: bytes) -> Codec | None:
    """Return the form of a request, None if a query names no action.

    Raises:
        SqsError: its parameters are malformed.
    """
    if request.method == "POST" and _is_json(request):
        return JsonCodec(request, body)
    form = body if request.method == "POST" else request.raw_query.encode("utf-8", "surrogateescape")
    if len(form) > _READER_BYTES_MAX:
        request.hold(3 * len(form))
    tree = await parse_form(form)
    return QueryCodec(tree, request.raw_path.partition("?")[0]) if "Action" in tree else None


def _refusal(request: Request, error: SqsError, codec: Codec | None, request_id: str) -> Reply:
    """Return an error in the form of its request, which may not be known yet."""
    if codec is not None:
        reply = codec.refusal(error, request_id)
    elif _is_json(request):
        reply = json_refusal(error, request_id)
    else:
        reply = QueryCodec({}, "").refusal(error, request_id)
    return reply


def _id_line(request_id: str) -> bytes:
    return b"x-amzn-RequestId: %b\r\n" % request_id.encode("ascii")
