"""Encoding of requests.

A request is ``[0, msgid, method, [arguments]]``. The connection prepends the msgid. This module composes the rest, the *body*,
from precomputed pieces, because packing a whole request costs more than everything else in a push.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lmqcluster.wire.errors import LmqError
from lmqcluster.wire.legacy_msgpack import make_unpacker, pack, pack_raw
from lmqcluster.wire.limits import REQUEST_BYTES_MAX

__all__ = ["Heads", "Name", "encode_content", "name_bytes", "pack_array", "request_body", "split_batch", "unpack_body"]

Name = str | bytes
"""A queue name, id or pattern as callers give it."""
_HEADS_MAX = 10_000
_SHORT = 1024
_RAW_HEADS = [pack_raw(bytes(size))[: -size or None] for size in range(_SHORT)]
"""MessagePack headers of strings by length in bytes, precomputed because most messages are short."""


def name_bytes(name: str | bytes) -> bytes:
    """Encode a queue name, id or pattern for the wire.

    Names that are not UTF-8 appear as `str` with surrogate escapes, so this function accepts those.
    """
    if isinstance(name, str):
        try:
            # Twice as fast as encoding with surrogate escapes.
            return name.encode()
        except UnicodeEncodeError:
            return name.encode("utf-8", "surrogateescape")
    if isinstance(name, bytes):
        return name
    raise TypeError(f"a name must be str or bytes, not {type(name).__name__}")


class Heads(dict[str | bytes, bytes]):
    """Cache of the bytes from the method name up to and including the first argument, by first argument, for one method.

    A cached name costs one dictionary access. A full cache is cleared.
    """

    def __init__(self, method: bytes, arguments: int) -> None:
        """Store the method's name and the number of arguments (0 to 15) of its requests."""
        super().__init__()
        self._prefix = pack_raw(method) + bytes((0x90 | arguments,))

    def __missing__(self, name: str | bytes) -> bytes:
        if len(self) >= _HEADS_MAX:
            self.clear()
        head = self[name] = self._prefix + pack_raw(name_bytes(name))
        return head


def encode_content(content: object) -> bytes:
    """Encode the content of one message in MessagePack; strings and bytes are both raw.

    Raises:
        LmqError: ``bad_arguments`` if MessagePack cannot express it, ``too_large`` if it exceeds the limit of nodes.
    """
    if type(content) is bytes:
        size = len(content)
        if size < _SHORT:
            return _RAW_HEADS[size] + content
        data = pack_raw(content)
    elif type(content) is str:
        try:
            data = pack_raw(content.encode())
        except UnicodeEncodeError as exc:
            raise LmqError("bad_arguments", f"the content cannot be encoded as UTF-8: {exc}") from exc
    else:
        data = pack(content)
    if len(data) > REQUEST_BYTES_MAX:
        # Each node that received it would close the connection.
        raise LmqError("too_large", f"the content has {len(data)} bytes, a request may have {REQUEST_BYTES_MAX}")
    return data


def request_body(method: bytes, arguments: Sequence[object]) -> bytes:
    """Return the body of any request.

    Raises:
        LmqError: ``bad_arguments`` or ``too_large``.
    """
    body = pack_raw(method) + pack(arguments)
    if len(body) > REQUEST_BYTES_MAX:
        raise LmqError("too_large", f"the request has {len(body)} bytes, one may have {REQUEST_BYTES_MAX}")
    return body


def unpack_body(body: bytes) -> tuple[bytes, list[object]]:
    """Return method and arguments of a body that `request_body` or `Heads` composed."""
    unpacker = make_unpacker(REQUEST_BYTES_MAX)
    unpacker.feed(body)
    return unpacker.unpack(), unpacker.unpack()


def pack_array(encoded: Sequence[bytes]) -> bytes:
    """Return a MessagePack array of values that are already encoded."""
    count = len(encoded)
    head = b"\xdc" + count.to_bytes(2, "big") if count < 65536 else b"\xdd" + count.to_bytes(4, "big")
    return b"".join((head, *encoded))


def split_batch(encoded: Sequence[bytes], count_max: int, bytes_max: int) -> Iterator[tuple[int, int]]:
    """Yield slices ``(start, end)`` of at most `count_max` values and, except for single values, `bytes_max` bytes."""
    start, size = 0, 0
    for index, data in enumerate(encoded):
        if index > start and (index - start == count_max or size + len(data) > bytes_max):
            yield start, index
            start, size = index, 0
        size += len(data)
    if encoded:
        yield start, len(encoded)
