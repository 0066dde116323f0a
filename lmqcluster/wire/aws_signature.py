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
STAMP: Final = re.compile(r"[12][0-9]{3}(0[1-9]|1[0-2])([0-2][0-9]|3[01])T([01][0-9]|2[0-3])([0-5][0-9]){2}Z")
"""The time of a signature."""


class SigningKey(NamedTuple):
    """A key that is derived from a secret access key for a day and a region.

    Attributes:
        key: 32 bytes.
        day, region: as in the scope of the signatures.
        may_omit_body: whether signatures may leave out the body, because the connection is encrypted.
    """

    key: bytes
    day: str
    region: str
    may_omit_body: bool

    @classmethod
    def of(cls, secret: str, day: str, region: str, *, may_omit_body: bool) -> SigningKey:
        """Return the key of a secret access key."""
        key = f"AWS4{secret}".encode()
        for word in (day, region, *SERVICE.split("/")):
            key = hmac.digest(key, word.encode(), "sha256")
        return cls(key, day, region, may_omit_body)

    def has_made(self, signature: str, stamp: str, canonical: bytes, payload: bytes, body: bytes) -> bool:
        """Return whether this key made a signature.

        Args:
            signature: hexadecimal.
            stamp: the time of the signature, as it is signed.
            canonical: the canonical request up to the hash of the body.
            payload: the hash of the body that the client names; empty if it names none.
            body: the body.
        """
        digest = payload
        if digest != UNSIGNED or not self.may_omit_body:
            digest = hashlib.sha256(body).hexdigest().encode()
            if payload not in (b"", digest):
                return False
        request = hashlib.sha256(canonical + digest).hexdigest()
        text = f"{ALGORITHM}\n{stamp}\n{self.day}/{self.region}/{SERVICE}\n{request}"
        made = hmac.digest(self.key, text.encode(), "sha256").hex()
        return hmac.compare_digest(made.encode(), signature.encode())


@lru_cache(maxsize=64)
def seconds_of(stamp: str) -> int | None:
    """Return the time of a signature in seconds since 1970, None if it is malformed."""
    if not STAMP.fullmatch(stamp):
        return None
    fields = (int(stamp[:4]), int(stamp[4:6]), int(stamp[6:8]), int(stamp[9:11]), int(stamp[11:13]), int(stamp[13:15]))
    return calendar.timegm(fields)
