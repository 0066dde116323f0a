"""Server status: the operations that the operator permits Kestrel's clients on this node. It is stored in a file."""

from __future__ import annotations

import contextlib
from enum import IntEnum
from pathlib import Path

from ...wire.errors import LmqError

__all__ = ["ServerStatus", "Status"]


class Status(IntEnum):
    """Status values, ordered by strictness."""

    UP = 1
    WRITEAVOID = 2
    READONLY = 3
    QUIESCENT = 4


class ServerStatus:
    """The status that all Kestrel ports of a node share.

    Attributes:
        present: the current status.
    """

    def __init__(self, path: Path) -> None:
        """Load the status from the file and store changes there; without a file the server is up."""
        self._path = path
        self.present = Status.UP
        with contextlib.suppress(FileNotFoundError):
            self.present = parse_status(path.read_text(encoding="ascii").strip()) or Status.UP

    @property
    def takes_writes(self) -> bool:
        """Return whether clients may put, flush and delete."""
        return self.present < Status.READONLY

    @property
    def takes_reads(self) -> bool:
        """Return whether clients may fetch and peek."""
        return self.present < Status.QUIESCENT

    def set(self, name: str) -> bool:
        """Change the status; return False if there is no such status.

        Raises:
            OSError: the file cannot be written.
        """
        found = parse_status(name)
        if found is None:
            return False
        unfinished = self._path.with_suffix(".new")
        unfinished.write_text(f"{found.name.lower()}\n", encoding="ascii")
        unfinished.replace(self._path)
        self.present = found
        return True

    def check_write(self, operation: str) -> None:
        """Refuse an operation that changes queues if the status forbids it.

        Raises:
            LmqError: ``suspended``.
        """
        if not self.takes_writes:
            raise self._unavailable(operation)

    def check_read(self, operation: str) -> None:
        """Refuse an operation that fetches or peeks if the status forbids it. Raises like `check_write`."""
        if not self.takes_reads:
            raise self._unavailable(operation)

    @staticmethod
    def _unavailable(operation: str) -> LmqError:
        return LmqError("suspended", f"Server not available for operation {operation}")


def parse_status(name: str) -> Status | None:
    """Return the status of this name, in any case, with or without a hyphen."""
    plain = name.upper().replace("-", "").replace("_", "")
    return Status.__members__.get(plain)
