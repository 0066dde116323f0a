"""Heads of requests that repeat an earlier one of their connection, but for what SDKs change in each request.

These are the length of the body, the date, the signature, the hash of the body and the id of the invocation. For the same
bytes in all other places, parsing, routing and authorization give the same result.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from .sdk_attempts import INVOCATION

__all__ = ["HeadPattern", "RepeatedSignature", "SignedHead"]

_LENGTH, _STAMP, _PAYLOAD = b"content-length", b"x-amz-date", b"x-amz-content-sha256"
_INVOCATION: Final = INVOCATION.encode("ascii")
_AUTHORIZATION: Final = b"authorization"
_VALUES: Final = {
    _LENGTH: re.compile(rb"[0-9]{1,6}"),
    _STAMP: re.compile(rb"[0-9]{8}T[0-9]{6}Z"),
    _PAYLOAD: re.compile(rb"[0-9a-f]{64}"),
    _INVOCATION: re.compile(rb"[!-~]{1,64}"),
    _AUTHORIZATION: re.compile(rb"[0-9a-f]{64}"),
}
"""The part that changes of the value of each header."""
_SIGNATURE: Final = b"Signature="
_UNREPEATED: Final = re.compile(rb"(?i)\r\n(?:transfer-encoding|upgrade|expect|traceparent|x-amzn-trace-id)[ \t]*:")
"""Headers of other framing, and those whose values differ in each request."""
_END: Final = b"\r\n\r\n"


class SignedHead(NamedTuple):
    """The signature of a head: its time, itself in hexadecimal, and the canonical request up to the hash of the body."""

    stamp: str
    signature: str
    canonical: bytes


class RepeatedSignature(NamedTuple):
    """The parts in which the signature of a repeated request differs; `payload` is empty if the client sends none."""

    stamp: bytes
    signature: bytes
    canonical: bytes
    payload: bytes


class _Place(NamedTuple):
    """A value that changes: its header, and its place in the head."""

    name: bytes
    start: int
    end: int


class HeadPattern:
    """The head of a request.

    Args:
        head: the bytes of the head.
        places: the values that change, in their order.
        canonical: a template of the canonical request with the values that it contains; None without a signature.
    """

    __slots__ = ("_canonical", "_rest", "_signed", "_size", "_steps")

    def __init__(self, head: bytes, places: list[_Place], canonical: tuple[bytes, list[bytes]] | None) -> None:
        self._size = len(head)
        starts = [0, *(place.end for place in places)]
        texts = [head[start : place.start] for start, place in zip(starts, places, strict=False)]
        self._steps = [
            (text, place.name, place.end - place.start, _VALUES[place.name].fullmatch)
            for text, place in zip(texts, places, strict=True)
        ]
        self._rest = head[starts[-1] :]
        self._canonical, self._signed = canonical or (b"", [])

    @classmethod
    def of(cls, head: bytes, signed: SignedHead | None) -> HeadPattern | None:
        """Return the pattern of a complete head with this signature; None if requests with it do not simply follow each other."""
        if _UNREPEATED.search(head) or not head.endswith(_END):
            return None
        places = _places(head)
        if places is None:
            return None
        values = {place.name: head[place.start : place.end] for place in places}
        if signed is None:
            return cls(head, places, None) if _LENGTH in values else None
        own = values.get(_STAMP), values.get(_AUTHORIZATION)
        if _LENGTH not in values or own != (signed.stamp.encode(), signed.signature.encode()):
            return None
        return cls(head, places, _template(signed.canonical, values))

    def match(self, data: bytes) -> tuple[dict[bytes, bytes], bytes] | None:
        """Return the values that change and the body, if `data` is exactly one request with this head."""
        size = data.find(_END) + len(_END)
        at, found = 0, dict[bytes, bytes]()
        for text, name, width, is_value in self._steps:
            start = at + len(text)
            # The length is the only value whose own length may change.
            end = start + width + (size - self._size if name == _LENGTH else 0)
            value = data[start:end]
            if not data.startswith(text, at) or is_value(value) is None:
                return None
            found[name] = value
            at = end
        body = data[size:]
        return (found, body) if data[at:size] == self._rest and int(found[_LENGTH]) == len(body) else None

    def signature(self, found: dict[bytes, bytes]) -> RepeatedSignature:
        """Return the signature of a request that has these values."""
        canonical = self._canonical % tuple([found[name] for name in self._signed])
        return RepeatedSignature(found[_STAMP], found[_AUTHORIZATION], canonical, found.get(_PAYLOAD, b""))

    @staticmethod
    def invocation(found: dict[bytes, bytes]) -> bytes | None:
        """Return the id of the invocation of a request that has these values, None if it has none."""
        return found.get(_INVOCATION)


def _places(head: bytes) -> list[_Place] | None:
    """Return the values that change in a head; None if one of these headers is there twice."""
    places: list[_Place] = []
    names: set[bytes] = set()
    at = 0
    for line in head.split(b"\r\n"):
        given, _colon, value = line.partition(b":")
        name = given.lower()
        if name in names:
            return None
        if name in _VALUES:
            names.add(name)
            start = at + len(line) - len(value.lstrip(b" \t"))
            text = value.strip(b" \t")
            if name == _AUTHORIZATION:
                before, mark, text = text.rpartition(_SIGNATURE)
                start += len(before) + len(mark)
            if _VALUES[name].fullmatch(text) is not None:
                places.append(_Place(name, start, start + len(text)))
        at += len(line) + 2
    return places


def _template(canonical: bytes, values: dict[bytes, bytes]) -> tuple[bytes, list[bytes]]:
    """Return a template of a canonical request, and the names of the values that it takes."""
    lines = canonical.replace(b"%", b"%%").split(b"\n")
    names: list[bytes] = []
    for number, line in enumerate(lines):
        name = line.partition(b":")[0]
        if name in values and line == b"%b:%b" % (name, values[name]):
            lines[number] = name + b":%b"
            names.append(name)
    return b"\n".join(lines), names
