"""The rest of a large request, in pieces until it is complete."""

from __future__ import annotations

from typing import Final

__all__ = ["RequestBuffer"]

PIECE_BYTES: Final = 256 * 1024


class RequestBuffer:
    """Bytes in the order in which they came.

    Many buffers that grow side by side leave gaps in the process's memory, as each needs a larger place again and again: 24 of
    them held nearly twice what was in them. RequestBuffer stay where they are.

    Attributes:
        size: how many bytes there are.
    """

    __slots__ = ("_pieces", "size")

    def __init__(self) -> None:
        self.size = 0
        self._pieces: list[bytearray] = []

    def add(self, data: bytes) -> None:
        """Take what came; if that is little, it is put to what came before, so that pieces are large."""
        self.size += len(data)
        pieces = self._pieces
        if pieces and len(pieces[-1]) < PIECE_BYTES:
            pieces[-1] += data
        else:
            pieces.append(bytearray(data))

    def take(self, first: bytearray) -> bytearray:
        """Everything behind `first`, which may change, in one buffer; nothing is left here.

        However often this is done with a buffer that grows, each byte is copied a few times at most.
        """
        pieces, size = self._pieces, self.size
        self._pieces, self.size = [], 0
        if len(first) < size:
            return bytearray().join((first, *pieces))
        for piece in pieces:
            first += piece
        return first
