"""Request headers that a message may keep and deliver to the client that pulls it.

The ``hooks`` of a queue name them. Reserved headers control how clients and browsers treat the answer, belong to the
node itself, or authenticate the producer, whose credentials must not reach consumers.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["is_header_name", "is_reserved"]

_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")

_PREFIXES: Final = (
    "access-control-",
    "content-security-policy",
    "cross-origin-",
    "proxy-",
    "sec-",
    "set-cookie",
    "x-lmq-",
)
_NAMES: Final = frozenset(
    (
        # framing of the answer
        "accept-ranges", "connection", "content-encoding", "content-length", "content-location", "content-range",
        "content-transfer-encoding", "content-type", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "via",
        # statements of the server about itself and the request
        "allow", "alt-svc", "authentication-info", "date", "host", "location", "refresh", "retry-after", "server", "status",
        "www-authenticate",
        # instructions to browsers and caches
        "age", "cache-control", "clear-site-data", "content-disposition", "etag", "expires", "last-modified", "link", "nel",
        "permissions-policy", "pragma", "referrer-policy", "report-to", "reporting-endpoints", "service-worker-allowed",
        "sourcemap", "strict-transport-security", "vary", "x-content-type-options", "x-dns-prefetch-control", "x-frame-options",
        "x-permitted-cross-domain-policies", "x-sourcemap", "x-xss-protection",
        # credentials of the producer
        "authorization", "cookie",
    )
)  # fmt: skip


def is_header_name(name: str) -> bool:
    """Return whether a request can have a header of this name (RFC 9110, token)."""
    return _NAME.fullmatch(name) is not None


def is_reserved(name: str) -> bool:
    """Return whether messages must not keep a header of this name; case is ignored."""
    name = name.lower()
    return name in _NAMES or name.startswith(_PREFIXES)
