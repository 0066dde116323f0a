"""Parts of answers that all routes share."""

from __future__ import annotations

from .reply import Reply

__all__ = ["OCTET_STREAM", "RETRY_AFTER", "WWW_AUTHENTICATE", "no_content"]

OCTET_STREAM = b"application/octet-stream"
"""Content type of a message that was pushed without one."""
RETRY_AFTER = b"retry-after: 1\r\n"
"""Header of every 503: an election takes about a second."""
WWW_AUTHENTICATE = b'www-authenticate: Bearer realm="lmqcluster"\r\n'
"""Header of every 401."""


def no_content() -> Reply:
    """Return 204: the operation is done, or there is no message."""
    return Reply(204)
