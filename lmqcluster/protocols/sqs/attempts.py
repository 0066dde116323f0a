"""Names under which clients repeat requests whose answers they did not get."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ...wire.sdk_attempts import INVOCATION, INVOCATION_BYTES_MAX

if TYPE_CHECKING:
    from ..http.server.requests.request import Request

__all__ = ["REMEMBERED_US", "invocation_of"]

REMEMBERED_US: Final = 300_000_000
"""Time for which attempts are remembered, in microseconds."""


def invocation_of(request: Request) -> bytes | None:
    """Return the id that all attempts of one call of an SDK have; None if there is none of a legal length."""
    value = request.raw_header(INVOCATION)
    return value if value is not None and 0 < len(value) <= INVOCATION_BYTES_MAX else None
