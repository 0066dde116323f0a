"""The port for queued's clients: its routes, served separately."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from ..http.server.port import HttpPort
from ..http.server.replies.reply import Reply
from ..http.server.requests.target import split_target
from ..http.server.routing import Router
from .media import error_reply
from .message_routes import MessageRoutes
from .metrics_routes import MetricsRoutes
from .permissions import permissions_of
from .queue_routes import QueueRoutes

if TYPE_CHECKING:
    from ...node.access.access import Principal
    from ...node.node import Node
    from ...ports import ConnectionSlot
    from ...wire.errors import LmqError
    from ..http.server.requests.request import Request

__all__ = ["QueuedPort"]


_KEY_PATH: Final = re.compile(r"(?is)(api[^/]*key[^/]*/).+")


class QueuedPort(HttpPort):
    """Port that serves queued's clients for one node."""

    def __init__(self, node: Node, host: str, port: int) -> None:
        """Prepare to listen on `host` and `port`; port 0 takes a free one."""
        super().__init__(node, host, port, node.gates.queued, "queued", Router(permissions_of))
        MessageRoutes(node, self._waits).add_to(self.router)
        QueueRoutes(node).add_to(self.router)
        MetricsRoutes(node).add_to(self.router)

    def _refused(self, request: Request, error: LmqError) -> Reply:
        return error_reply(request, error)

    def _not_found(self, segments: list[bytes]) -> Reply:  # noqa: ARG002 - whatever it is
        return Reply(404)

    def _split(self, target: str) -> tuple[list[bytes], str]:
        # queued's protocol does not decode a plus sign as a space.
        path, mark, query = target.partition("?")
        return split_target(path.replace("+", "%2B") + mark + query)

    def _authenticate(self, value: bytes, place: ConnectionSlot) -> Principal:
        """Return the principal of a token or an API key, sent bare or as a bearer token."""
        scheme, _space, secret = value.partition(b" ")
        shown = secret.strip() if scheme.lower() == b"bearer" else value.strip()
        return self._access.authenticate(shown, place, takes_keys=True)

    def _shown_path(self, request: Request) -> str:
        """Return the path with any API key masked, also in a mistyped path."""
        path = super()._shown_path(request)
        return _KEY_PATH.sub(r"\1...", unquote(path)) if _KEY_PATH.search(unquote(path)) else path
