"""The keys of tokens for the SQS port, whose clients sign requests instead of sending a secret.

A signature can be checked only with the secret that made it. So that the cluster need not store the secret of a token, clients
sign with a key that is derived from it. A reader of that key can act as the token on the SQS port, and on no other one.
"""

from __future__ import annotations

import base64
import hashlib
import hmac

__all__ = ["secret_access_key", "sqs_key"]

_PURPOSE = b"lmqcluster sqs 1"


def sqs_key(secret: bytes) -> bytes:
    """Return the key that is derived from the secret of a token."""
    return hmac.digest(secret, _PURPOSE, hashlib.sha256)


def secret_access_key(key: bytes) -> str:
    """Return the form in which clients take a key: the secret access key that belongs to the token's name as access key ID."""
    return base64.urlsafe_b64encode(key).decode().rstrip("=")
