"""Heads of requests that repeat an earlier one of their connection, but for what SDKs change in each request.

These are the length of the body, the date, the signature, the hash of the body and the id of the invocation. For the same
bytes in all other places, parsing, routing and authorization give the same result.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from operator import itemgetter
from typing import Final, NamedTuple

from .sdk_attempts import INVOCATION

__all__ = ["HeadPattern", "RepeatedSignature", "SignedHead"]

_LENGTH, _STAMP, _PAYLOAD = b"content-length", b"x-amz-date", b"x-amz-content-sha256"
_INVOCATION: Final = INVOCATION.encode("ascii")
_AUTHORIZATION: Final = b"authorization"
_DIGITS_MAX: Final = 6
_VALUES: Final = {
    _LENGTH: re.compile(rb"[0-9]{1,%d}" % _DIGITS_MAX),
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


class _Cut(NamedTuple):
    """How requests with a head of some size are cut: the parts that stay, and those that change with the body behind them."""

    fixed: Callable[[bytes], tuple[bytes, ...]]
    free: Callable[[bytes], tuple[bytes, ...]]


class HeadPattern:
    """The head of a request.

    Args:
        head: the bytes of the head.
        places: the values that change, in their order; one is the length of the body.
        canonical: a template of the canonical request with the values that it contains; None without a signature.
    """

    __slots__ = (
        "_canonical", "_cuts", "_fixed", "_have_form", "_invocation", "_length", "_places", "_signature", "_signed", "_size",
    )  # fmt: skip

    def __init__(self, head: bytes, places: list[_Place], canonical: tuple[bytes, list[bytes]] | None) -> None:
        self._size = len(head)
        self._places = places
        positions = {place.name: position for position, place in enumerate(places)}
        # The value of a header that is missing is the empty one behind the others.
        self._length, self._invocation, *self._signature = (
            positions.get(name, len(places)) for name in (_LENGTH, _INVOCATION, _STAMP, _AUTHORIZATION, _PAYLOAD)
        )
        self._have_form = _form_of(tuple(positions))
        # By the size of the head, which differs with the number of digits of the length.
        self._cuts: dict[int, _Cut | None] = {}
        own = self._cut(len(head))
        assert own is not None  # noqa: S101 - the head has the size of the head
        self._fixed = own.fixed(head)
        self._canonical, names = canonical or (b"", [])
        self._signed = [positions[name] for name in names]

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

    def match(self, data: bytes) -> tuple[tuple[bytes, ...], bytes] | None:
        """Return the values that change and the body, if `data` is exactly one request with this head."""
        size = data.find(_END) + len(_END)
        cut = self._cuts[size] if size in self._cuts else self._cut(size)
        if cut is None or cut.fixed(data) != self._fixed:
            return None
        *values, body = found = cut.free(data)
        if self._have_form(b"\n".join(values)) is None or int(values[self._length]) != len(body):
            return None
        return found, body

    def _cut(self, size: int) -> _Cut | None:
        """Return how requests with a head of this size are cut; None if no such request has this head."""
        more = size - self._size
        if abs(more) >= _DIGITS_MAX:
            return None
        fixed: list[slice] = []
        free: list[slice] = []
        at = shift = 0
        for place in self._places:
            start = place.start + shift
            if place.name == _LENGTH:
                shift = more
            fixed.append(slice(at, start))
            at = place.end + shift
            free.append(slice(start, at))
            if at <= start:
                self._cuts[size] = None
                return None
        fixed.append(slice(at, size))
        self._cuts[size] = cut = _Cut(itemgetter(*fixed), itemgetter(*free, slice(0), slice(size, None)))
        return cut

    def signature(self, found: tuple[bytes, ...]) -> RepeatedSignature:
        """Return the signature of a request that has these values."""
        canonical = self._canonical % tuple([found[position] for position in self._signed])
        stamp, signature, payload = self._signature
        return RepeatedSignature(found[stamp], found[signature], canonical, found[payload])

    def invocation(self, found: tuple[bytes, ...]) -> bytes | None:
        """Return the id of the invocation of a request that has these values, None if it has none."""
        return found[self._invocation] or None


@lru_cache(maxsize=64)
def _form_of(names: tuple[bytes, ...]) -> Callable[[bytes], object]:
    """Return what finds that the values of these headers, each with the end of its line, have their form."""
    return re.compile(b"".join([_VALUES[name].pattern + b"\n" for name in names])).fullmatch


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
