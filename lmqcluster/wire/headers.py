"""Which request headers may be kept with a message and given to the client that pulls it.

A queue's ``hooks`` name them. What would change how the answer is read, how a browser treats it, or what the node itself says
in it is not a message's to set; and what proves who the producer is must not reach consumers.
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
        # how the answer is framed and read
        "accept-ranges", "connection", "content-encoding", "content-length", "content-location", "content-range",
        "content-transfer-encoding", "content-type", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "via",
        # what the server says of itself and of the request
        "allow", "alt-svc", "authentication-info", "date", "host", "location", "refresh", "retry-after", "server", "status",
        "www-authenticate",
        # what browsers and caches make of it
        "age", "cache-control", "clear-site-data", "content-disposition", "etag", "expires", "last-modified", "link", "nel",
        "permissions-policy", "pragma", "referrer-policy", "report-to", "reporting-endpoints", "service-worker-allowed",
        "sourcemap", "strict-transport-security", "vary", "x-content-type-options", "x-dns-prefetch-control", "x-frame-options",
        "x-permitted-cross-domain-policies", "x-sourcemap", "x-xss-protection",
        # who the producer is
        "authorization", "cookie",
    )
)  # fmt: skip


def is_header_name(name: str) -> bool:
    """Return whether a request can have a header of this name (RFC 9110, token)."""
    return _NAME.fullmatch(name) is not None


def is_reserved(name: str) -> bool:
    """Whether a header of this name, in whatever case, is not a message's to have."""
    name = name.lower()
    return name in _NAMES or name.startswith(_PREFIXES)
