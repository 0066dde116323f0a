"""``/openapi.json``: the description of the HTTP interface."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..server.replies import problem
from ..server.replies.reply import JSON, Reply
from ..server.routing import Resource, Router
from .document import document

if TYPE_CHECKING:
    from ..server.requests.request import Request

__all__ = ["OpenapiRoute"]


class OpenapiRoute:
    """Route that serves the document. The document is built on the first request."""

    def __init__(self) -> None:
        self._document: bytes | None = None

    def add_to(self, router: Router) -> None:
        """Register the route."""
        router.add("/openapi.json", Resource({"GET": self.show}, problem.on_error, problem.refuse("GET")))

    async def show(self, request: Request) -> Reply:  # noqa: ARG002  a handler takes its request
        """Return the document."""
        if self._document is None:
            self._document = document()
        return Reply(200, JSON, self._document)
