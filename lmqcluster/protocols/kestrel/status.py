"""The status of a server: what its operator lets Kestrel's clients do at this node. It is kept in a file."""

from __future__ import annotations

import contextlib
from enum import IntEnum
from pathlib import Path

from ...wire.errors import LmqError

__all__ = ["ServerStatus", "Status"]


class Status(IntEnum):
    """The values are how strict they are."""

    UP = 1
    WRITEAVOID = 2
    READONLY = 3
    QUIESCENT = 4


class ServerStatus:
    """One for all of Kestrel's ports of a node.

    Attributes:
        present: what holds now.
    """

    def __init__(self, path: Path) -> None:
        """Take the status that the file tells of, and keep it there; without a file the server is up."""
        self._path = path
        self.present = Status.UP
        with contextlib.suppress(FileNotFoundError):
            self.present = parse_status(path.read_text(encoding="ascii").strip()) or Status.UP

    @property
    def takes_writes(self) -> bool:
        """Whether clients may put, flush and delete."""
        return self.present < Status.READONLY

    @property
    def takes_reads(self) -> bool:
        """Whether clients may take items out, and look at them."""
        return self.present < Status.QUIESCENT

    def set(self, name: str) -> bool:
        """Change it; False if there is no such status.

        Raises:
            OSError: it cannot be kept.
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
        """Refuse what changes queues.

        Raises:
            LmqError: ``suspended``.
        """
        if not self.takes_writes:
            raise self._unavailable(operation)

    def check_read(self, operation: str) -> None:
        """Refuse what takes items out, or looks at them. Raises as `check_write`."""
        if not self.takes_reads:
            raise self._unavailable(operation)

    @staticmethod
    def _unavailable(operation: str) -> LmqError:
        return LmqError("suspended", f"Server not available for operation {operation}")


def parse_status(name: str) -> Status | None:
    """The status of this name, in whatever case, with or without a hyphen."""
    plain = name.upper().replace("-", "").replace("_", "")
    return Status.__members__.get(plain)
