"""``/openapi.json``: the description of the HTTP interface."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import problem
from .openapi import document
from .reply import JSON, Reply
from .routing import Resource, Router

if TYPE_CHECKING:
    from .request import Request

__all__ = ["OpenapiRoute"]


class OpenapiRoute:
    """Serves the document, which is made when it is asked for first."""

    def __init__(self) -> None:
        self._document: bytes | None = None

    def add_to(self, router: Router) -> None:
        """Register the routes."""
        for path in ("/openapi.json", "/v1/openapi.json"):
            router.add(path, Resource({"GET": self.show}, problem.on_error, problem.refuse("GET")))

    async def show(self, request: Request) -> Reply:  # noqa: ARG002  a handler takes its request
        """The document."""
        if self._document is None:
            self._document = document()
        return Reply(200, JSON, self._document)
