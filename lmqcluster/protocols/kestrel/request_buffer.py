"""The rest of a large request, kept in pieces until it is complete."""

from __future__ import annotations

from typing import Final

__all__ = ["RequestBuffer"]

PIECE_BYTES: Final = 256 * 1024


class RequestBuffer:
    """Bytes in order of arrival, stored in pieces that do not move.

    Contiguous buffers that grow concurrently fragment the process's memory, because each must move to a larger block
    again and again: 24 of them occupied nearly twice the size of their contents.

    Attributes:
        size: number of bytes in all pieces.
    """

    __slots__ = ("_pieces", "size")

    def __init__(self) -> None:
        self.size = 0
        self._pieces: list[bytearray] = []

    def add(self, data: bytes) -> None:
        """Add received data. Small data extends the last piece, so that pieces are large."""
        self.size += len(data)
        pieces = self._pieces
        if pieces and len(pieces[-1]) < PIECE_BYTES:
            pieces[-1] += data
        else:
            pieces.append(bytearray(data))

    def take(self, first: bytearray) -> bytearray:
        """Return `first`, which may change, and all pieces in one buffer; no piece is left here.

        If this is repeated with a growing buffer, each byte is copied at most a few times.
        """
        pieces, size = self._pieces, self.size
        self._pieces, self.size = [], 0
        if len(first) < size:
            return bytearray().join((first, *pieces))
        for piece in pieces:
            first += piece
        return first
