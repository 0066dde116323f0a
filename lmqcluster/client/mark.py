"""The stored position of a stream of a job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["Mark"]


@dataclass(frozen=True, slots=True)
class Mark:
    """Stored position of a stream of a job.

    Attributes:
        position: position of its next message, which is the number of stored ones.
        done: whether the stream is complete.
        notes: the concatenated notes of its pushes.
    """

    position: int
    done: bool
    notes: bytes

    @staticmethod
    def part(reply: Any) -> tuple[int, bool, int, bytes] | None:
        """Decode the reply of a node: position, whether done, size of all notes, and a part of them."""
        if reply is None:
            return None
        position, done, note_bytes, part = reply
        return int(position), bool(done), int(note_bytes), bytes(part)
