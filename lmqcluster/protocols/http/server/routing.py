"""Routes: the handlers of each path, and the answer to other methods."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Concatenate

from ....core import Role
from ....node.access.permissions import MANAGE, Permission, Scope
from ....wire.errors import LmqError, forget_frames
from .permissions import permissions_of
from .replies.reply import Reply
from .requests.request import Request
from .requests.target import pattern_of

__all__ = ["KNOWN_METHODS", "Handler", "Resource", "Router"]

Handler = Callable[Concatenate[Request, ...], Awaitable[Reply]]
"""Function that answers a request, called with the request and the decoded variables of the path; may raise `LmqError`."""

KNOWN_METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))


@dataclass(frozen=True, slots=True)
class Resource:
    """Handlers of one path.

    Attributes:
        methods: handlers by HTTP method.
        on_error: formats an error of a handler.
        refuse: formats the answer to a method without a handler; called with its status, 405 or 501.
        guard: check before the method, as in LMQ's ``/messages``; raises `LmqError`.
        path: the path, set by the router.
        any_method: whether an unknown method also gets 405, instead of 501.
        permissions: the permission that each method requires; set by the router from the table of `permissions`.
    """

    methods: Mapping[str, Handler]
    on_error: Callable[[LmqError], Reply]
    refuse: Callable[[int], Reply]
    guard: Callable[[Request], None] | None = None
    any_method: bool = False
    path: str = field(default="", compare=False)
    permissions: Mapping[str, Permission] = field(default_factory=dict, compare=False)

    def is_open_to(self, method: str) -> bool:
        """Return whether a method requires no token."""
        wanted = self.permissions.get(method)
        return wanted is not None and wanted.scope is Scope.NOTHING

    def is_administrative(self, method: str) -> bool:
        """Return whether a request only reads or manages. Such a request ends soon, because it neither pushes nor pulls."""
        wanted = self.permissions.get(method)
        return wanted is not None and wanted.role is not Role.WRITE

    async def answer(self, request: Request, values: list[bytes]) -> Reply:
        """Run the handler of the request's method."""
        try:
            if not request.principal.is_root:
                self._authorise(request, values)
            if self.guard is not None:
                self.guard(request)
            handler = self.methods.get(request.method)
            if handler is None:
                return self.refuse(405 if self.any_method or request.method in KNOWN_METHODS else 501)
            return await handler(request, *values)
        except LmqError as exc:
            reply = self.refused(request, exc)
            forget_frames(exc)
            return reply

    def refused(self, request: Request, error: LmqError) -> Reply:  # noqa: ARG002 - some answer in the request's format
        """Return the answer to a request that fails."""
        return self.on_error(error)

    def _authorise(self, request: Request, values: list[bytes]) -> None:
        """Refuse a request that the client has no permission for.

        Raises:
            LmqError: ``unauthorized``, ``forbidden``, or ``bad_request`` if the request does not name its subject.
        """
        if request.method not in self.methods:
            return
        wanted = self.permissions.get(request.method, MANAGE)
        subject = values[0] if values else b""
        if wanted.scope is Scope.PATTERN:
            subject = pattern_of(request.parameters())
        request.principal.demand(wanted, subject)


@dataclass(slots=True)
class _Place:
    """One node of the tree of paths."""

    resource: Resource | None = None
    literals: dict[bytes, _Place] = field(default_factory=dict)
    variable: _Place | None = None


class Router:
    """Tree of paths that finds a resource in one step per segment."""

    def __init__(self, permissions: Callable[[str], Mapping[str, Permission]] = permissions_of) -> None:
        """Create an empty router; `permissions` returns the permissions that a path requires."""
        self._permissions = permissions
        self._root = _Place()
        self._paths: dict[str, Resource] = {}

    def __iter__(self) -> Iterator[tuple[str, Resource]]:
        """Iterate over all paths with their resources."""
        return iter(self._paths.items())

    def add(self, path: str, resource: Resource) -> None:
        """Add a resource at a path such as ``/messages/{name}``."""
        place = self._root
        for segment in path.removesuffix("/").split("/")[1:]:
            if segment.startswith("{"):
                if place.variable is None:
                    place.variable = _Place()
                place = place.variable
            else:
                place = place.literals.setdefault(segment.encode(), _Place())
        if place.resource is not None:
            raise ValueError(f"there is a resource at {path} already")
        place.resource = self._paths[path] = replace(resource, path=path, permissions=self._permissions(path))

    def find(self, segments: list[bytes]) -> tuple[Resource | None, list[bytes]]:
        """Return the resource of a path, or None, and the values of its variables. Literal segments take precedence."""
        place = self._root
        values: list[bytes] = []
        for segment in segments:
            literal = place.literals.get(segment)
            if literal is not None:
                place = literal
            elif place.variable is not None:
                place = place.variable
                values.append(segment)
            else:
                return None, values
        return place.resource, values
