"""``/console/``: the files of the web console, which uses the other routes of the same node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aiohttp import hdrs

from ...console.assets import INDEX, load
from .server.replies import problem
from .server.replies.problem import HttpRefusalError
from .server.replies.reply import Reply
from .server.routing import Resource, Router

if TYPE_CHECKING:
    from .server.requests.request import Request

__all__ = ["ConsoleRoutes"]

# The page loads nothing from other sites and has no inline script or style. No other page may frame it.
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_GUARDS: Final = (
    f"content-security-policy: {_POLICY}\r\n"
    "x-content-type-options: nosniff\r\n"
    "x-frame-options: DENY\r\n"
    "referrer-policy: no-referrer\r\n"
    "cross-origin-opener-policy: same-origin\r\n"
    "cross-origin-resource-policy: same-origin\r\n"
    "cache-control: no-cache\r\n"
)


class ConsoleRoutes:
    """Routes that serve the console's files from memory."""

    def __init__(self) -> None:
        self._assets = load()

    def add_to(self, router: Router) -> None:
        """Register the routes."""
        for path, handler in (("/console", self.index), ("/console/{file}", self.file)):
            methods = {"GET": handler, "HEAD": handler}
            router.add(path, Resource(methods, problem.on_error, problem.refuse(*methods)))
        router.add("/", Resource({"GET": self.root}, problem.on_error, problem.refuse("GET")))

    async def root(self, request: Request) -> Reply:
        """Redirect clients that accept HTML, such as browsers, to the console; answer others with 404."""
        if "text/html" not in request.headers.get(hdrs.ACCEPT, ""):
            return Reply(404)
        return Reply(302, b"location: console/\r\n")

    async def index(self, request: Request) -> Reply:
        """Return the page. Its relative addresses work behind a proxy that adds a prefix, but need the final slash."""
        if not request.raw_path.partition("?")[0].endswith("/"):
            return Reply(308, b"location: console/\r\n")
        return self._serve(request, INDEX)

    async def file(self, request: Request, file: bytes) -> Reply:
        """Return one file of the page."""
        return self._serve(request, file.decode(errors="replace"))

    def _serve(self, request: Request, name: str) -> Reply:
        asset = self._assets.get(name)
        if asset is None:
            raise HttpRefusalError(404, "route_not_found", "the console has no such file; it begins at /console/")
        head = f"{_GUARDS}etag: {asset.tag}\r\n"
        if request.headers.get(hdrs.IF_NONE_MATCH) == asset.tag:
            return Reply(304, head.encode())
        return Reply(200, f"content-type: {asset.media_type}\r\n{head}".encode(), asset.content)
