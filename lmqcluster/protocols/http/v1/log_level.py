"""``/v1/log-level``: the log level of this node's process, changed at run time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ....node.config.config import LOG_LEVELS
from ....node.process.logs import log_level, set_log_level
from ....wire.errors import LmqError
from ....wire.limits import HTTP_PROPERTY_BYTES_MAX
from ..server.replies import problem
from ..server.routing import Resource, Router
from .bodies.media import read_value, reply_media

if TYPE_CHECKING:
    from ..server.replies.reply import Reply
    from ..server.requests.request import Request

__all__ = ["LogLevelRoute"]


class LogLevelRoute:
    """Route that shows and changes the log level, until the process ends."""

    def add_to(self, router: Router) -> None:
        """Register the route."""
        methods = {"GET": self.show, "PUT": self.change}
        router.add("/v1/log-level", Resource(methods, problem.on_error, problem.refuse(*methods)))

    async def show(self, request: Request) -> Reply:
        """Return the current level."""
        return reply_media(request).reply({"level": log_level()})

    async def change(self, request: Request) -> Reply:
        """Log from this level on."""
        body: Any = await read_value(request, HTTP_PROPERTY_BYTES_MAX)
        level = body.get("level") if isinstance(body, dict) and body.keys() == {"level"} else None
        if level not in LOG_LEVELS:
            raise LmqError("bad_request", f"the body must be an object with level, one of {', '.join(LOG_LEVELS)}")
        set_log_level(level)
        return await self.show(request)
