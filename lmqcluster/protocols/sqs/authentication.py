"""Who sends a request, as its signature says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from aiohttp import hdrs

from .errors import INVALID_CLIENT_TOKEN, MISSING_TOKEN, SqsError

if TYPE_CHECKING:
    from multidict import CIMultiDictProxy

    from ...node.access.access import Access, Principal
    from ...ports import ConnectionSlot

__all__ = ["Authenticate", "SignedHead", "UnknownKeys"]

_QUERY_ALGORITHM: Final = "X-Amz-Algorithm="


class SignedHead(NamedTuple):
    """What a signature covers besides the body.

    Attributes:
        method: of HTTP.
        path: as it was sent.
        query: as it was sent, without the question mark.
        headers: of the request.
    """

    method: str
    path: str
    query: str
    headers: CIMultiDictProxy[str]

    @property
    def is_signed(self) -> bool:
        """Return whether there is a signature."""
        return hdrs.AUTHORIZATION in self.headers or _QUERY_ALGORITHM in self.query


class Authenticate(Protocol):
    """Returns the principal of a signed request."""

    def __call__(self, head: SignedHead, body_hash: str | None, place: ConnectionSlot) -> Principal:
        """Return the principal.

        Args:
            head: what is signed besides the body.
            body_hash: SHA-256 of the body in hexadecimal; None before the body is read: then the principal is the one whose
                key the head names, and only what needs no body is checked.
            place: the connection.

        Raises:
            LmqError: the request is not signed, or not by this key; ``no_leader`` if the node does not know the keys yet.
        """


class UnknownKeys:
    """Refuses all signatures, as long as no token has a key."""

    def __init__(self, access: Access) -> None:
        self._access = access

    def __call__(self, head: SignedHead, body_hash: str | None, place: ConnectionSlot) -> Principal:  # noqa: ARG002
        """Refuse a request."""
        refusal = self._access.refusal()
        if refusal.code != "unauthorized":
            raise refusal
        if not head.is_signed:
            raise SqsError(MISSING_TOKEN, "The request must be signed.")
        raise SqsError(INVALID_CLIENT_TOKEN, "The security token included in the request is invalid.")
