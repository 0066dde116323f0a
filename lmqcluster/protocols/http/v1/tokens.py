"""``/v1/tokens`` and ``/v1/access``: the clients that may use the cluster, and their permissions."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ....core import Role
from ....node.access.sqs_keys import secret_access_key, sqs_key
from ....node.access.tokens import create_token, delete_token, list_tokens
from ....wire.errors import LmqError
from ..server.replies.common_replies import no_content
from ..server.replies.problem import on_error, refuse
from ..server.routing import Resource, Router
from .bodies.media import read_value, reply_media

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ....node.node import Node
    from ..server.replies.reply import Reply
    from ..server.requests.request import Request
    from ..server.routing import Handler

__all__ = ["TokenRoutes"]

_BODY_BYTES_MAX = 64 * 1024
_FIELDS = {"name", "role", "queues", "lifetime", "principal", "sqs"}


class TokenRoutes:
    """Routes that translate requests to the tokens of the cluster."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def add_to(self, router: Router) -> None:
        """Register the routes."""
        table: Mapping[str, Mapping[str, Handler]] = {
            "/v1/tokens": {"GET": self.list_all, "POST": self.create},
            "/v1/tokens/{name}": {"DELETE": self.delete},
            "/v1/access": {"GET": self.show_own},
        }
        for path, methods in table.items():
            router.add(path, Resource(methods, on_error, refuse(*methods)))

    async def list_all(self, request: Request) -> Reply:
        """Return all tokens by name, without their secrets."""
        tokens = [asdict(token) for token in await list_tokens(self._node)]
        return reply_media(request).reply({"tokens": tokens})

    async def show_own(self, request: Request) -> Reply:
        """Return the permissions of the client."""
        principal = request.principal
        fields = {
            "name": principal.name,
            "role": Role(principal.role).name.lower(),
            "queues": principal.pattern.decode("utf-8", "backslashreplace"),
            "principal": principal.owner.decode("utf-8", "backslashreplace"),
            "required": self._node.access.anonymous is None,
        }
        return reply_media(request).reply(fields)

    async def create(self, request: Request) -> Reply:
        """Create a token. Only this answer ever contains its secrets."""
        media = reply_media(request)
        name, role, queues, lifetime_s, principal, sqs = _fields(await read_value(request, _BODY_BYTES_MAX))
        secret = await create_token(self._node, name, role, queues, lifetime_s, principal, sqs=sqs)
        made = {"name": name, "role": role, "queues": queues, "principal": name if principal is None else principal}
        made["token"] = secret
        if sqs:
            made["secret_access_key"] = secret_access_key(sqs_key(secret.encode()))
        return media.reply(made)

    async def delete(self, request: Request, name: bytes) -> Reply:  # noqa: ARG002  a handler takes its request
        """Delete a token."""
        await delete_token(self._node, name.decode("utf-8", "surrogateescape"))
        return no_content()


def _fields(body: Any) -> tuple[str, str, str, float | None, str | None, bool]:
    if not isinstance(body, dict) or not {"name", "role"} <= body.keys() <= _FIELDS:
        text = "the body must be an object with name and role, and perhaps queues, lifetime, principal and sqs"
        raise LmqError("bad_request", text)
    name, role, queues = body["name"], body["role"], body.get("queues", ".*")
    if not all(isinstance(value, str) for value in (name, role, queues)):
        raise LmqError("bad_request", "name, role and queues must be texts")
    lifetime_s = body.get("lifetime")
    if lifetime_s is not None and (isinstance(lifetime_s, bool) or not isinstance(lifetime_s, (int, float))):
        raise LmqError("bad_request", "lifetime must be a number of seconds, or null for a token that does not expire")
    principal = body.get("principal")
    if principal is not None and not isinstance(principal, str):
        raise LmqError("bad_request", "principal must be a text, or null for a principal of the token's own")
    sqs = body.get("sqs", False)
    if not isinstance(sqs, bool):
        raise LmqError("bad_request", "sqs must be true or false")
    return name, role, queues, lifetime_s, principal, sqs
