"""The Raft log of one node, behind PySyncObj's journal interface.

`Journal` is the interface that the Raft core and the replica use. `MemoryJournal` keeps entries in memory,
`DiskJournal` on disk. Term, vote and incarnation are always on disk, in `NodeMeta`, because a node that forgets them
could vote twice.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from ...base.membership import is_change, stamp_us_of

__all__ = ["Entry", "Journal", "LibraryJournal", "MemoryJournal", "TermStore"]

_ENTRY_OVERHEAD_BYTES = 120


class Entry(NamedTuple):
    """One log entry; the order of fields is PySyncObj's."""

    command: bytes
    idx: int
    term: int


class TermStore(Protocol):
    """Storage in which term and vote survive a restart."""

    term: int
    vote: str | None

    def save_vote(self, term: int, vote: str | None) -> None:
        """Make term and vote durable before any message that shows them leaves the node."""


class Journal(Protocol):
    """A log. Indexes are log indexes; the first entry is the base, already applied.

    Changes are made in memory immediately and become durable by the work from `take_work`.

    Attributes:
        size_bytes: commands behind the base, with an overhead each.
        changes: (index, command) of the membership entries behind the base, in order.
        applied_last: entries up to here have been applied, and only followers need them again.
    """

    size_bytes: int
    changes: list[tuple[int, bytes]]
    applied_last: int

    @property
    def first_index(self) -> int: ...
    @property
    def last_index(self) -> int: ...
    @property
    def stamped_us(self) -> int:
        """Return the latest log time of the entries, 0 if none has one; entries up to the base may be left out."""

    def add(self, command: bytes, idx: int, term: int) -> None: ...
    def term_at(self, index: int) -> int: ...
    def first_index_of_term(self, term: int, before: int) -> int: ...
    def entries(self, start: int, size_bytes_max: int) -> list[Entry]: ...
    def entries_between(self, start: int, stop: int) -> list[Entry]: ...
    def truncate_from(self, index: int) -> None: ...
    def drop_before(self, index: int) -> list[tuple[int, bytes]]: ...
    def reset(self, index: int, term: int) -> None: ...
    def setCurrentTerm(self, term: int, votedForNodeId: str | None) -> None: ...  # noqa: N802, N803 - PySyncObj's names
    def getCurrentTerm(self) -> int: ...  # noqa: N802
    def getVotedForNodeId(self) -> str | None: ...  # noqa: N802
    @property
    def dirty(self) -> bool: ...
    @property
    def progress(self) -> int: ...
    def take_work(self) -> Callable[[], None]: ...
    def written(self) -> None: ...
    def prepare_spare(self) -> Callable[[], None] | None: ...
    def sync(self) -> None: ...
    def close(self) -> None: ...
    def __len__(self) -> int: ...


class LibraryJournal(ABC):
    """PySyncObj's journal interface on top of ours; the library counts positions from the base."""

    _store: TermStore

    @property
    @abstractmethod
    def first_index(self) -> int:
        """Return the index of the base entry."""

    @abstractmethod
    def term_at(self, index: int) -> int:
        """Return the term of the entry at `index`, which must be in the log."""

    @abstractmethod
    def truncate_from(self, index: int) -> None:
        """Remove the entry at `index` and all later ones."""

    @abstractmethod
    def drop_before(self, index: int) -> list[tuple[int, bytes]]:
        """Make the entry at `index` the base; return the membership changes up to it, which leave `changes`."""

    @abstractmethod
    def close(self) -> None:
        """Close the files; pending writes are lost."""

    def first_index_of_term(self, term: int, before: int) -> int:
        """Return the smallest index of the run of entries of `term` that ends at `before`."""
        index = before
        while index > self.first_index and self.term_at(index - 1) == term:
            index -= 1
        return index

    def deleteEntriesFrom(self, entryFrom: int) -> None:  # noqa: N802, N803 - PySyncObj's names
        """Remove entries from the position `entryFrom`, counted from the base."""
        self.truncate_from(self.first_index + entryFrom)

    def deleteEntriesTo(self, entryTo: int) -> None:  # noqa: N802, N803
        """Make the entry at position `entryTo` the base."""
        self.drop_before(self.first_index + entryTo)

    def clear(self) -> None:
        """Refuse PySyncObj's clear; the core uses `reset`."""
        raise RuntimeError("the Raft core resets the journal to a base, it never empties it")

    def setCurrentTerm(self, term: int, votedForNodeId: str | None) -> None:  # noqa: N802, N803
        """Make term and vote durable."""
        self._store.save_vote(term, votedForNodeId)

    def getCurrentTerm(self) -> int:  # noqa: N802
        """Return the durable term."""
        return self._store.term

    def getVotedForNodeId(self) -> str | None:  # noqa: N802
        """Return the durable vote of that term."""
        return self._store.vote

    def setRaftCommitIndex(self, raftCommitIndex: int) -> None:  # noqa: B027, N802, N803 - nothing to do is right
        """Do nothing: the node learns the commit index from the leader again."""

    def getRaftCommitIndex(self) -> int:  # noqa: N802
        """Return the commit index to start with."""
        return self.first_index

    def onOneSecondTimer(self) -> None:  # noqa: B027, N802
        """Do nothing."""

    def _destroy(self) -> None:
        """Close, under PySyncObj's name."""
        self.close()


class MemoryJournal(LibraryJournal):
    """A log in memory. Appending, reading and dropping a prefix cost O(1) an entry."""

    def __init__(self, store: TermStore, base_command: bytes) -> None:
        self._store = store
        self._base_command = base_command
        # Entries before `_offset` are dropped; they are removed from the list in batches.
        self._entries: list[Entry] = [Entry(base_command, 1, 0)]
        self._offset = 0
        self.size_bytes = 0
        self.changes: list[tuple[int, bytes]] = []
        self.applied_last = 0

    # --- interface of the Raft core -------------------------------------------------------------------------------

    @property
    def first_index(self) -> int:
        """Return the index of the base entry."""
        return self._entries[self._offset].idx

    @property
    def last_index(self) -> int:
        """Return the index of the newest entry."""
        return self._entries[-1].idx

    @property
    def stamped_us(self) -> int:
        """Return the latest log time of the entries behind the base."""
        behind = range(len(self._entries) - 1, self._offset, -1)
        return next((stamp for position in behind if (stamp := stamp_us_of(self._entries[position].command))), 0)

    def term_at(self, index: int) -> int:
        """Return the term of the entry at `index`, which must be in the log."""
        return self._entries[self._position(index)].term

    def entries(self, start: int, size_bytes_max: int) -> list[Entry]:
        """Return entries from `start` on, at least one if there is any, at most `size_bytes_max` of commands."""
        position = self._position(start)
        result: list[Entry] = []
        size = 0
        for entry in self._entries[position : position + 256]:
            size += len(entry.command)
            if result and size > size_bytes_max:
                break
            result.append(entry)
        return result

    def entries_between(self, start: int, stop: int) -> list[Entry]:
        """Return the entries from `start` to `stop`, both included."""
        return self._entries[self._position(start) : self._position(stop) + 1]

    def truncate_from(self, index: int) -> None:
        """Remove the entry at `index` and all later ones."""
        position = self._position(index)
        self.size_bytes -= sum(map(_cost, self._entries[position:]))
        del self._entries[position:]
        self.changes = [change for change in self.changes if change[0] < index]

    def drop_before(self, index: int) -> list[tuple[int, bytes]]:
        """Make the entry at `index` the base; return the membership changes up to it, which leave `changes`."""
        position = self._position(index)
        dropped = self._entries[self._offset : position + 1]
        self.size_bytes -= sum(map(_cost, dropped[1:]))
        self._offset = position
        if self._offset > 1024 and self._offset * 2 > len(self._entries):
            del self._entries[: self._offset]
            self._offset = 0
        else:
            # Free the bodies now, the list slots later.
            for i in range(position - len(dropped) + 1, position):
                self._entries[i] = Entry(b"", self._entries[i].idx, self._entries[i].term)
        gone = [change for change in self.changes if change[0] <= index]
        self.changes = self.changes[len(gone) :]
        return gone

    def reset(self, index: int, term: int) -> None:
        """Remove all entries; the base stands for a snapshot at `index`."""
        self._entries = [Entry(self._base_command, index, term)]
        self._offset = 0
        self.size_bytes = 0
        self.changes = []

    @property
    def dirty(self) -> bool:
        """Return False: in memory nothing becomes durable."""
        return False

    @property
    def progress(self) -> int:
        """Return 0: in memory there are no syncs."""
        return 0

    def take_work(self) -> Callable[[], None]:
        """Return empty work: in memory nothing becomes durable."""
        return self.written

    def written(self) -> None:
        """Do nothing."""

    def prepare_spare(self) -> Callable[[], None] | None:
        """Return None: in memory there are no files."""
        return None

    def sync(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""

    def _position(self, index: int) -> int:
        position = index - self._entries[0].idx
        if not self._offset <= position <= len(self._entries):
            raise IndexError(f"log index {index} is outside {self.first_index}..{self.last_index}")
        return position

    # --- PySyncObj's interface ------------------------------------------------------------------------------------

    def add(self, command: bytes, idx: int, term: int) -> None:
        """Append one entry; its index must follow the last one."""
        if idx != self._entries[-1].idx + 1:
            raise ValueError(f"entry {idx} does not follow the last entry {self._entries[-1].idx}")
        entry = Entry(command, idx, term)
        self._entries.append(entry)
        self.size_bytes += _cost(entry)
        if is_change(command):
            self.changes.append((idx, command))

    def __len__(self) -> int:
        return len(self._entries) - self._offset

    def __getitem__(self, item: Any) -> Any:
        if isinstance(item, slice):
            start, stop, step = item.indices(len(self))
            return self._entries[self._offset + start : self._offset + stop : step]
        return self._entries[item if item < 0 else self._offset + item]


def _cost(entry: Entry) -> int:
    return len(entry.command) + _ENTRY_OVERHEAD_BYTES
