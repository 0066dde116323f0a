"""Names of the attempts of one call of an Amazon SDK, which repeats a request whose answer it did not get."""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

__all__ = ["INVOCATION", "INVOCATION_BYTES_MAX", "attempt_of"]

INVOCATION: Final = "amz-sdk-invocation-id"
"""Header with the id that all attempts of a call have."""
INVOCATION_BYTES_MAX: Final = 64
_DIGEST_BYTES: Final = 16


def attempt_of(invocation: bytes, body: bytes, attributes: bytes, place: int) -> bytes:
    """Return what names a message in the repetitions of its request: another body is another message.

    Args:
        invocation: the id of the call.
        body: the body of the message.
        attributes: its attributes, packed.
        place: its place in the request, from 0.
    """
    digest = blake2b(b"%b%d%b" % (body, len(body), attributes), digest_size=_DIGEST_BYTES)
    return b"%b %d %b" % (invocation, place, digest.digest())
