"""The list of queues that need attention, as far as a client may see them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .....node.metrics.attention import Attention
    from ...server.requests.request import Request
    from .media import Media

__all__ = ["attention_for"]


def attention_for(attention: Attention, request: Request, media: Media) -> dict[str, Any]:
    """Return the list for the client of a request."""
    principal = request.principal
    return attention.describe(media.name, None if principal.everywhere else principal.covers)
