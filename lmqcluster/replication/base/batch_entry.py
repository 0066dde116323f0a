"""A batch of a node, as stored in an entry of the log."""

from __future__ import annotations

import msgpack

from ...core.log.commands import Encoded

__all__ = ["batch_number", "decode_batch"]

_HEAD_BYTES = 512
"""Origin, incarnation and sequence take less than this."""


def decode_batch(data: bytes | memoryview) -> tuple[bytes, int, int, list[Encoded]]:
    """Return origin, incarnation, sequence and commands of a batch.

    Raises:
        ValueError, TypeError, msgpack.UnpackException: it is not a batch.
    """
    origin, incarnation, sequence, commands = msgpack.unpackb(data, strict_map_key=False)
    if type(origin) is not bytes or type(incarnation) is not int or type(sequence) is not int:
        raise ValueError("a batch begins with its origin, incarnation and sequence")
    if type(commands) is not list or not all(type(command) is list and command for command in commands):
        raise ValueError("a batch ends with a list of commands")
    return origin, incarnation, sequence, commands


def batch_number(data: bytes) -> tuple[bytes, int, int] | None:
    """Return origin, incarnation and sequence of a batch without decoding its commands, None if it is not a batch."""
    head = msgpack.Unpacker()
    head.feed(data[:_HEAD_BYTES])
    try:
        size = head.read_array_header()
        origin, incarnation, sequence = head.unpack(), head.unpack(), head.unpack()
    except (ValueError, msgpack.UnpackException):
        return None
    if size != 4 or type(origin) is not bytes or type(incarnation) is not int or type(sequence) is not int:
        return None
    return origin, incarnation, sequence
