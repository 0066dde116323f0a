"""Repeated sends of clients of SQS: ``SendMessage`` in JSON with nothing but a body, to one queue.

A process that has the pattern of such requests needs nothing else to verify and decode them, see `head_patterns`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from hashlib import md5
from typing import Final, NamedTuple

from .aws_signature import SKEW_S, SigningKey, seconds_of
from .head_patterns import HeadPattern, SignedHead
from .sdk_attempts import attempt_of
from .xml_text import is_xml_text

__all__ = ["PLAIN_MEMBERS", "RepeatedSend", "Sent"]

PLAIN_MEMBERS: Final = frozenset(("QueueUrl", "MessageBody"))
"""The members of a send that has no options."""
_DIGEST_BYTES: Final = 16
_ATTEMPT_START: Final = _DIGEST_BYTES + 1


class Sent(NamedTuple):
    """A message of a repeated send, after all checks that need only its request.

    Attributes:
        digest: the MD5 of the body, in hexadecimal.
        attempt: see `attempt_of`; None if the client does not name its call.
        content: the body.
    """

    digest: str
    attempt: bytes | None
    content: bytes

    @classmethod
    def of(cls, packed: bytes) -> Sent:
        """Return the message that `RepeatedSend.match` packed."""
        end = _ATTEMPT_START + packed[_DIGEST_BYTES]
        return cls(packed[:_DIGEST_BYTES].hex(), packed[_ATTEMPT_START:end] or None, packed[end:])


class RepeatedSend:
    """The pattern (`Pattern`) of sends to one queue.

    Args:
        head: the head of the first request.
        url: the URL by which it names its queue.
        signed: its signature; None without one.
        key: what verifies signatures; None without one.
        payload: the hash of the body that the head names, if that is no hash; empty if it is one or is missing.
    """

    __slots__ = ("_head", "_key", "_pattern", "_payload", "_signed", "_url")

    def __init__(
        self,
        head: bytes,
        url: str,
        signed: SignedHead | None = None,
        key: SigningKey | None = None,
        payload: bytes = b"",
    ) -> None:
        """Take a request.

        Raises:
            ValueError: other requests cannot repeat this one.
        """
        pattern = HeadPattern.of(head, signed)
        if pattern is None or (signed is None) != (key is None):
            raise ValueError("requests with this head do not simply follow each other")
        self._pattern = pattern
        self._head = head
        self._url = url
        self._signed = signed
        self._key = key
        self._payload = payload

    def match(self, data: bytes) -> tuple[bytes, bytes] | None:
        """Return an empty tag and the packed message, see `Sent`, if `data` is exactly one valid repetition."""
        found = self._pattern.match(data)
        if found is None:
            return None
        values, body = found
        content = self._content(body)
        if content is None or not self._is_signed(values, body):
            return None
        invocation = self._pattern.invocation(values)
        attempt = b"" if invocation is None else attempt_of(invocation, content, b"", 0)
        digest = md5(content, usedforsecurity=False).digest()
        return b"", b"%b%c%b%b" % (digest, len(attempt), attempt, content)

    def row(self) -> Sequence[object]:
        """Return the encoded form."""
        signed = None if self._signed is None else tuple(self._signed)
        return self._head, self._url, signed, None if self._key is None else tuple(self._key), self._payload

    @classmethod
    def of(
        cls, head: bytes, url: bytes, signed: list[bytes] | None, key: list[bytes] | None, payload: bytes
    ) -> RepeatedSend:
        """Return the pattern with this encoded form."""
        own = None if signed is None else SignedHead(signed[0].decode(), signed[1].decode(), signed[2])
        made_with = None if key is None else SigningKey(key[0], key[1].decode(), key[2].decode(), bool(key[3]))
        return cls(head, url.decode(), own, made_with, payload)

    def _content(self, body: bytes) -> bytes | None:
        """Return the body of the message; None if the request has anything else or is malformed."""
        try:
            given = json.loads(body.decode())
            if type(given) is not dict or given.keys() != PLAIN_MEMBERS or given["QueueUrl"] != self._url:
                return None
            text = given["MessageBody"]
            return text.encode() if type(text) is str and text and is_xml_text(text) else None
        except (ValueError, RecursionError):
            return None

    def _is_signed(self, values: dict[bytes, bytes], body: bytes) -> bool:
        key = self._key
        if key is None:
            return True
        parts = self._pattern.signature(values)
        stamp = parts.stamp.decode("latin-1")
        signed_s = seconds_of(stamp)
        if signed_s is None or stamp[:8] != key.day or abs(time.time() - signed_s) > SKEW_S:
            return False
        return key.has_made(
            parts.signature.decode("latin-1"), stamp, parts.canonical, parts.payload or self._payload, body
        )
