"""Repeated sends of clients of SQS: ``SendMessage`` and ``SendMessageBatch`` in JSON with nothing but bodies, to one queue.

A process that has the pattern of such requests needs nothing else to verify and decode them, see `head_patterns`.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping, Sequence
from hashlib import md5
from typing import Any, Final

from .aws_signature import SKEW_S, SigningKey, seconds_of
from .head_patterns import HeadPattern, SignedHead
from .sdk_attempts import attempt_of
from .xml_text import is_xml_text

__all__ = ["ENTRY_ID", "RepeatedSend", "Sent", "is_plain_send"]

_decode: Final = json.JSONDecoder().decode
ENTRY_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,80}")
"""The id of an entry of a batch."""
_SEND: Final = frozenset(("QueueUrl", "MessageBody"))
_SEND_BATCH: Final = frozenset(("QueueUrl", "Entries"))
_ENTRY: Final = frozenset(("Id", "MessageBody"))


Sent = tuple[bytes, bytes, bytes | None, bytes]
"""A message of a repeated send, after all checks that need only its request: the id of its entry, which is empty if its request
is no batch, the MD5 of the body in hexadecimal, its attempt (see `attempt_of`) or None, and the body."""


def is_plain_send(parameters: Mapping[str, Any]) -> bool:
    """Return whether the parameters of an action are those of a send that has nothing but bodies."""
    if parameters.keys() == _SEND:
        return True
    return parameters.keys() == _SEND_BATCH and all(entry.keys() == _ENTRY for entry in parameters["Entries"])


class RepeatedSend:
    """The pattern (`Pattern`) of sends to one queue.

    Args:
        head: the head of the first request.
        url: the URL by which it names its queue.
        entries_max: most entries of a batch; 0 if the requests are no batches.
        signed: its signature; None without one.
        key: what verifies signatures; None without one.
        payload: the hash of the body that the head names, if that is no hash; empty if it is one or is missing.
    """

    __slots__ = ("_entries_max", "_head", "_key", "_pattern", "_payload", "_signed", "_url")

    def __init__(
        self,
        head: bytes,
        url: str,
        entries_max: int = 0,
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
        self._entries_max = entries_max
        self._signed = signed
        self._key = key
        self._payload = payload

    def match(self, data: bytes) -> tuple[bytes, list[Sent]] | None:
        """Return an empty tag and the messages if `data` is exactly one valid repetition."""
        found = self._pattern.match(data)
        if found is None:
            return None
        values, body = found
        given = self._entries(body)
        if not given or not self._is_signed(values, body):
            return None
        invocation = self._pattern.invocation(values)
        return b"", [
            (
                name,
                md5(content, usedforsecurity=False).hexdigest().encode(),
                None if invocation is None else attempt_of(invocation, content, b"", place),
                content,
            )
            for place, (name, content) in enumerate(given)
        ]

    def row(self) -> Sequence[object]:
        """Return the encoded form."""
        signed = None if self._signed is None else tuple(self._signed)
        key = None if self._key is None else tuple(self._key)
        return self._head, self._url, self._entries_max, signed, key, self._payload

    @classmethod
    def of(
        cls,
        head: bytes,
        url: bytes,
        entries_max: int,
        signed: list[bytes] | None,
        key: list[bytes] | None,
        payload: bytes,
    ) -> RepeatedSend:
        """Return the pattern with this encoded form."""
        own = None if signed is None else SignedHead(signed[0].decode(), signed[1].decode(), signed[2])
        made_with = None if key is None else SigningKey(key[0], key[1], bool(key[2]))
        return cls(head, url.decode(), entries_max, own, made_with, payload)

    def _entries(self, body: bytes) -> list[tuple[bytes, bytes]]:
        """Return the names of the entries and the bodies of the messages; none if the request has anything else or is wrong."""
        try:
            given = _decode(body.decode())
            if type(given) is not dict or not is_plain_send(given) or given["QueueUrl"] != self._url:
                return []
            if "Entries" not in given:
                return [] if self._entries_max else [(b"", _content(given["MessageBody"]))]
            found = {_entry_id(entry["Id"]): _content(entry["MessageBody"]) for entry in given["Entries"]}
        except (AttributeError, TypeError, ValueError, RecursionError):
            return []
        return list(found.items()) if len(given["Entries"]) == len(found) <= self._entries_max else []

    def _is_signed(self, values: tuple[bytes, ...], body: bytes) -> bool:
        key = self._key
        if key is None:
            return True
        stamp, signature, canonical, payload = self._pattern.signature(values)
        signed_s = seconds_of(stamp.decode("latin-1"))
        if signed_s is None or not stamp.startswith(key.day) or abs(time.time() - signed_s) > SKEW_S:
            return False
        return key.has_made(signature, stamp, canonical, payload or self._payload, body)


def _content(text: Any) -> bytes:
    """Return a body that every check accepts but that of its length. Raises ValueError."""
    if type(text) is not str or not text or not is_xml_text(text):
        raise ValueError("the body is no text, empty, or has characters that are not allowed")
    return text.encode()


def _entry_id(name: Any) -> bytes:
    """Return the id of an entry. Raises ValueError."""
    if type(name) is not str or ENTRY_ID.fullmatch(name) is None:
        raise ValueError("the id of the entry is malformed")
    return name.encode()
