"""Signatures of requests: Amazon's version 4, in the header ``Authorization`` or in the query string.

A client signs a canonical form of its request with a secret access key. The check has two steps, because the signature covers
the body and the body of a stranger must not be read: `Signatures.recognize` needs only the head, and refuses what is malformed,
late or of an unknown key; `Signatures.verify` compares the signature.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from email.utils import parsedate
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import quote_from_bytes, unquote_to_bytes

from ...wire.aws_signature import ALGORITHM, SERVICE, SKEW_S, STAMP, SigningKey, seconds_of
from ...wire.head_patterns import SignedHead
from .errors import INCOMPLETE_SIGNATURE, INVALID_CLIENT_TOKEN, MISSING_TOKEN, SIGNATURE_MISMATCH, SqsError

if TYPE_CHECKING:
    from ...node.access.access import Access, Principal
    from ...wire.errors import LmqError

__all__ = ["EXPIRY_S_MAX", "KEYS_MAX", "Claim", "Head", "Signatures"]

EXPIRY_S_MAX: Final = 604_800
"""Longest validity of a signature in a query string, in seconds."""
KEYS_MAX: Final = 1_000
"""Most signing keys that are remembered."""

_SCOPE_PARTS: Final = 5
_CONTENT_HASH: Final = b"x-amz-content-sha256"
_TARGET: Final = b"x-amz-target"
_HEADER_PARTS: Final = ("Credential", "SignedHeaders", "Signature")
_QUERY_PARTS: Final = ("X-Amz-Credential", "X-Amz-SignedHeaders", "X-Amz-Signature", "X-Amz-Date", "X-Amz-Expires")
_REGION: Final = re.compile(r"[A-Za-z0-9-]{1,64}")
_TIME_FORMAT: Final = "%Y%m%dT%H%M%SZ"
_EXPIRY: Final = re.compile(r"[0-9]{1,6}")


class Head(NamedTuple):
    """The head of a request, as it was sent.

    Attributes:
        method: such as ``POST``.
        path: the path, percent-encoded.
        query: the query string without its question mark, percent-encoded.
        headers: names and values, in order.
    """

    method: str
    path: str
    query: str
    headers: Iterable[tuple[bytes, bytes]]


class Claim(NamedTuple):
    """A signature that is not verified yet, of a known key.

    Attributes:
        principal: the client that the key belongs to.
        secret: the secret access key.
        day: the day of the signature, as in its scope.
        region: the region that the client names, which has no meaning here.
        stamp: the time of the signature, as it is signed.
        signature: hexadecimal.
        canonical: the canonical request up to the hash of the body.
        payload: the hash of the body that the client names; empty if it names none.
    """

    principal: Principal
    secret: str
    day: str
    region: str
    stamp: str
    signature: str
    canonical: bytes
    payload: bytes

    def head(self) -> SignedHead:
        """Return what a pattern of the head needs to know of it."""
        return SignedHead(self.stamp, self.signature, self.canonical)


class Signatures:
    """Checks the signatures of requests to one port."""

    __slots__ = ("_access", "_is_encrypted", "_keys")

    def __init__(self, access: Access, *, is_encrypted: bool) -> None:
        """Take the keys from `access`. Signatures may leave out the body only if connections to the port are encrypted."""
        self._access = access
        self._is_encrypted = is_encrypted
        self._keys: dict[tuple[str, str, str], SigningKey] = {}

    def __len__(self) -> int:
        """Return the number of remembered signing keys."""
        return len(self._keys)

    def recognize(self, head: Head, now_s: float) -> Claim:
        """Return the signature of a request, whose body need not have arrived; `now_s` is the node's time of day since 1970.

        Raises:
            SqsError: there is none, it is malformed or not valid now, or its key is unknown.
            LmqError: ``no_leader``: the node does not know the keys yet.
        """
        headers: dict[bytes, list[bytes]] = {}
        for name, value in head.headers:
            headers.setdefault(name.lower(), []).append(value)
        parameters = _parameters(head.query)
        parts = _parts(headers, parameters)
        names = _signed_names(parts, headers)
        access_key_id, day, region = _scope(parts.credential)
        if parts.stamp[:8] != day:
            raise _mismatch("The date of the credential is not that of the request.")
        _check_time(parts.stamp, parts.expiry, now_s)
        signer = self._access.signer(access_key_id)
        if signer is None:
            raise self._unknown()
        secret, principal = signer
        lines = [
            head.method.encode(),
            _encoded(head.path.encode("utf-8", "surrogateescape"), "/").encode() or b"/",
            _canonical_query(parameters),
            *(name + b":" + b",".join([b" ".join(value.split()) for value in headers[name]]) for name in names),
            b"",
            b";".join(names),
            b"",
        ]
        payload = _single(headers, _CONTENT_HASH)
        return Claim(principal, secret, day, region, parts.stamp, parts.signature, b"\n".join(lines), payload)

    def renewed(
        self, claim: Claim, stamp: bytes, signature: bytes, canonical: bytes, payload: bytes, now_s: float
    ) -> Claim:
        """Return the signature of a request that differs from that of a recognized one in these parts only.

        Raises:
            SqsError: it is not valid now.
        """
        text = stamp.decode("latin-1")
        if text[:8] != claim.day:
            raise _mismatch("The date of the credential is not that of the request.")
        _check_time(text, "", now_s)
        return claim._replace(
            stamp=text, signature=signature.decode("latin-1"), canonical=canonical, payload=payload or claim.payload
        )

    def _unknown(self) -> LmqError:
        """Return the error for a key that is not known, or not yet."""
        refusal = self._access.refusal()
        if refusal.code != "unauthorized":
            return refusal
        return SqsError(INVALID_CLIENT_TOKEN, "The security token included in the request is invalid.")

    def key_of(self, claim: Claim) -> SigningKey | None:
        """Return the key that has made a signature, None if it is not remembered."""
        return self._keys.get((claim.secret, claim.day, claim.region))

    def verify(self, claim: Claim, body: bytes) -> Principal:
        """Return the client that has signed a request with this body.

        Raises:
            SqsError: the signature is wrong, or its key was revoked while the body arrived.
        """
        if claim.principal.is_revoked:
            raise self._unknown()
        place = claim.secret, claim.day, claim.region
        known = self._keys.get(place)
        key = SigningKey.of(*place, may_omit_body=self._is_encrypted) if known is None else known
        signature, stamp = claim.signature.encode("latin-1"), claim.stamp.encode("latin-1")
        if not key.has_made(signature, stamp, claim.canonical, claim.payload, body):
            raise _mismatch("Check your secret access key and signing method.")
        # A stranger may know the ID of a key, so only a key that has made a signature gets a place.
        if known is None:
            if len(self._keys) >= KEYS_MAX:
                del self._keys[next(iter(self._keys))]
            self._keys[place] = key
        return claim.principal


class _Parts(NamedTuple):
    """A signature as it is written; `expiry` is empty unless it is in the query string."""

    credential: str
    signed_headers: str
    signature: str
    stamp: str
    expiry: str


def _parts(headers: dict[bytes, list[bytes]], parameters: list[tuple[bytes, bytes]]) -> _Parts:
    in_query = {name.decode("latin-1"): value.decode("latin-1") for name, value in parameters if name[:6] == b"X-Amz-"}
    value = _single(headers, b"authorization").decode("latin-1")
    if "X-Amz-Algorithm" in in_query:
        if value:
            raise _incomplete("A signature is either in the header Authorization or in the query string.")
        return _parts_of_query(in_query, [name for name, _ in parameters])
    if not value:
        raise SqsError(MISSING_TOKEN, "Request is missing Authentication Token")
    algorithm, _space, text = value.partition(" ")
    if algorithm != ALGORITHM:
        raise _incomplete(f"Authorization must begin with {ALGORITHM}.")
    found: dict[str, str] = {}
    for item in text.split(","):
        name, _equals, part = item.strip().partition("=")
        if name in found or name not in _HEADER_PARTS:
            raise _incomplete(f"Authorization has these parts, each once: {', '.join(_HEADER_PARTS)}.")
        found[name] = part
    for name in _HEADER_PARTS:
        if not found.get(name):
            raise _incomplete(f"Authorization header requires '{name}' parameter.")
    stamp = _single(headers, b"x-amz-date").decode("latin-1") or _stamp(_single(headers, b"date").decode("latin-1"))
    return _Parts(found["Credential"], found["SignedHeaders"], found["Signature"], stamp, "")


def _parts_of_query(found: dict[str, str], names: list[bytes]) -> _Parts:
    if found["X-Amz-Algorithm"] != ALGORITHM:
        raise _incomplete(f"X-Amz-Algorithm must be {ALGORITHM}.")
    for name in _QUERY_PARTS:
        if not found.get(name):
            raise _incomplete(f"AWS query-string parameters must include '{name}'.")
        if names.count(name.encode()) > 1:
            raise _incomplete(f"'{name}' is there twice.")
    if not _EXPIRY.fullmatch(found["X-Amz-Expires"]) or not 1 <= int(found["X-Amz-Expires"]) <= EXPIRY_S_MAX:
        raise _incomplete(f"X-Amz-Expires must be 1 to {EXPIRY_S_MAX} seconds.")
    credential, signed, signature, stamp, expiry = (found[name] for name in _QUERY_PARTS)
    return _Parts(credential, signed, signature, stamp, expiry)


def _stamp(date: str) -> str:
    """Return the value of a header ``Date`` as it is signed."""
    if not date:
        raise _incomplete("Authorization header requires existence of either a 'X-Amz-Date' or a 'Date' header.")
    if STAMP.fullmatch(date):
        return date
    try:
        found = parsedate(date)
        return "" if found is None else time.strftime(_TIME_FORMAT, found)
    except (ValueError, OverflowError, IndexError):
        return ""


def _scope(credential: str) -> tuple[str, str, str]:
    """Return the ID of the key, the day and the region of a credential."""
    parts = credential.split("/")
    if len(parts) != _SCOPE_PARTS or not parts[0]:
        raise _incomplete("Credential must have the form KEY/DATE/REGION/sqs/aws4_request.")
    key, day, region, service, end = parts
    if f"{service}/{end}" != SERVICE:
        raise _mismatch(f"Credential should be scoped to {SERVICE}.")
    if not _REGION.fullmatch(region):
        raise _mismatch("Credential should be scoped to a valid region.")
    return key, day, region


def _signed_names(parts: _Parts, headers: dict[bytes, list[bytes]]) -> list[bytes]:
    """Return the names of the signed headers, after a check that they are there and are those that must be signed."""
    names = parts.signed_headers.encode("latin-1").split(b";")
    if len(set(names)) != len(names):
        raise _incomplete("SignedHeaders names a header twice.")
    for name in names:
        if name not in headers:
            raise _mismatch("A signed header is missing.")
    # The action of the other protocol is in the body or in the query string, which are always signed. PHP's SDK does not sign
    # the content type.
    required = (b"host",) if parts.expiry or _TARGET not in headers else (b"host", _TARGET)
    for name in required:
        if name not in names:
            raise _mismatch(f"'{name.decode()}' must be a signed header.")
    return names


def _check_time(stamp: str, expiry: str, now_s: float) -> None:
    signed_s = seconds_of(stamp)
    if signed_s is None:
        raise _incomplete("The date must have the form YYYYMMDDTHHMMSSZ.")
    if signed_s > now_s + SKEW_S:
        text = f"Signature not yet current: {stamp} is still later than {_written(now_s)} + 15 min."
        raise SqsError(SIGNATURE_MISMATCH, text)
    if now_s > signed_s + (int(expiry) if expiry else SKEW_S):
        raise SqsError(SIGNATURE_MISMATCH, f"Signature expired: {stamp} is now earlier than {_written(now_s)}.")


def _written(now_s: float) -> str:
    return time.strftime(_TIME_FORMAT, time.gmtime(now_s))


def _parameters(query: str) -> list[tuple[bytes, bytes]]:
    """Return the decoded names and values of a query string."""
    if not query:
        return []
    items = query.replace("+", "%20").encode("utf-8", "surrogateescape").split(b"&")
    pairs = (item.partition(b"=") for item in items if item)
    return [(unquote_to_bytes(name), unquote_to_bytes(value)) for name, _equals, value in pairs]


def _canonical_query(parameters: list[tuple[bytes, bytes]]) -> bytes:
    if not parameters:
        return b""
    pairs = [(_encoded(name), _encoded(value)) for name, value in parameters if name != b"X-Amz-Signature"]
    return "&".join([f"{name}={value}" for name, value in sorted(pairs)]).encode()


def _encoded(data: bytes, safe: str = "") -> str:
    return quote_from_bytes(data, safe=f"{safe}-_.~")


def _single(headers: dict[bytes, list[bytes]], name: bytes) -> bytes:
    """Return the value of a header that must not occur twice; empty if it is missing."""
    values = headers.get(name)
    if values is None:
        return b""
    if len(values) > 1:
        raise _incomplete(f"The header {name.decode()} is there twice.")
    return values[0].strip()


def _incomplete(text: str) -> SqsError:
    return SqsError(INCOMPLETE_SIGNATURE, text)


def _mismatch(text: str) -> SqsError:
    beginning = "The request signature we calculated does not match the signature you provided."
    return SqsError(SIGNATURE_MISMATCH, f"{beginning} {text}")
