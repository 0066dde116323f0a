"""Amazon's signature version 4: how a signature is made of a canonical request, and for how long it is valid."""

from __future__ import annotations

import calendar
import hashlib
import hmac
import re
from functools import lru_cache
from typing import Final, NamedTuple

__all__ = ["ALGORITHM", "SERVICE", "SKEW_S", "STAMP", "UNSIGNED", "SigningKey", "seconds_of"]

ALGORITHM: Final = "AWS4-HMAC-SHA256"
SERVICE: Final = "sqs/aws4_request"
"""The end of the scope of each key."""
SKEW_S: Final = 900
"""Largest difference in seconds between the clocks of a client and of the node."""
UNSIGNED: Final = b"UNSIGNED-PAYLOAD"
"""Named by a client instead of the hash of a body that it does not sign."""
_ALGORITHM: Final = ALGORITHM.encode()
_DAY_BYTES: Final = 8
STAMP: Final = re.compile(r"[12][0-9]{3}(0[1-9]|1[0-2])([0-2][0-9]|3[01])T([01][0-9]|2[0-3])([0-5][0-9]){2}Z")
"""The time of a signature."""


class SigningKey(NamedTuple):
    """A key that is derived from a secret access key for a day and a region.

    Attributes:
        key: 32 bytes.
        scope: the day, the region and the service, as in the scope of the signatures.
        may_omit_body: whether signatures may leave out the body, because the connection is encrypted.
    """

    key: bytes
    scope: bytes
    may_omit_body: bool

    @classmethod
    def of(cls, secret: str, day: str, region: str, *, may_omit_body: bool) -> SigningKey:
        """Return the key of a secret access key."""
        scope = f"{day}/{region}/{SERVICE}"
        key = f"AWS4{secret}".encode()
        for word in scope.split("/"):
            key = hmac.digest(key, word.encode(), "sha256")
        return cls(key, scope.encode(), may_omit_body)

    @property
    def day(self) -> bytes:
        """Return the day whose signatures it makes."""
        return self.scope[:_DAY_BYTES]

    def has_made(self, signature: bytes, stamp: bytes, canonical: bytes, payload: bytes, body: bytes) -> bool:
        """Return whether this key made a signature.

        Args:
            signature: hexadecimal.
            stamp: the time of the signature, as it is signed.
            canonical: the canonical request up to the hash of the body.
            payload: the hash of the body that the client names; empty if it names none.
            body: the body.
        """
        digest = payload
        if payload != UNSIGNED or not self.may_omit_body:
            digest = hashlib.sha256(body).hexdigest().encode()
            if payload and payload != digest:
                return False
        request = hashlib.sha256(canonical + digest).hexdigest().encode()
        made = hmac.digest(self.key, b"%b\n%b\n%b\n%b" % (_ALGORITHM, stamp, self.scope, request), "sha256")
        return hmac.compare_digest(made.hex().encode(), signature)


@lru_cache(maxsize=64)
def seconds_of(stamp: str) -> int | None:
    """Return the time of a signature in seconds since 1970, None if it is malformed."""
    if not STAMP.fullmatch(stamp):
        return None
    fields = (int(stamp[:4]), int(stamp[4:6]), int(stamp[6:8]), int(stamp[9:11]), int(stamp[11:13]), int(stamp[13:15]))
    return calendar.timegm(fields)
