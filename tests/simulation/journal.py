"""A journal that reports every change of the log to the checkers, and how much of it is durable, before the log forgets
it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from pysyncobj.journal import Journal

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["Entry", "LogView", "LogWatcher", "WatchedJournal"]

Entry = tuple[bytes, int, int]
"""Command, index and term, in the library's order."""


class LogWatcher(Protocol):
    """Receives the changes of one log."""

    def log_appended(self, command: bytes, index: int, term: int, previous_term: int | None) -> None: ...

    def log_truncated(self, first_index: int, terms: Sequence[int]) -> None:
        """Called while the log still has the entries `first_index` ... that are about to be removed at its end."""

    def log_compacted(self) -> None:
        """Called while the log still has the entries that are about to be removed at its beginning."""

    def log_broken(self, reason: str) -> None: ...

    def vote_stored(self, term: int, voted_for: str | None) -> None: ...


class LogView:
    """Index and term of every entry of one log, for the checkers: `terms[i]` is the term at `first + i`.

    `durable_last` is the last entry that outlives the process, or a power failure if the log is synced. Entries that a
    newer leader removed before they were written do not count.
    """

    __slots__ = ("durable_last", "first", "terms")

    def __init__(self) -> None:
        self.first = 1
        self.durable_last = 0
        self.terms: list[int] = []

    @property
    def last(self) -> int:
        return self.first + len(self.terms) - 1

    def term_at(self, index: int) -> int | None:
        """Return the term at `index`, None below the first entry and beyond the last."""
        position = index - self.first
        return self.terms[position] if 0 <= position < len(self.terms) else None

    def durable_term_at(self, index: int) -> int | None:
        """Return the term at `index`, None also beyond the durable end."""
        return self.term_at(index) if index <= self.durable_last else None


class WatchedJournal(Journal):
    """Carries out the library's calls on `inner` (any journal) and keeps a `LogView` beside it."""

    def __init__(self, inner: Journal, watcher: LogWatcher, *, durable: bool = False) -> None:
        """Wrap `inner`; without `durable`, every entry in the log counts as stored at once."""
        self._inner = inner
        self._watcher = watcher
        self._durable = durable
        self._syncing_to = 0
        self.view = LogView()
        entries = inner[0:]
        if entries:
            # The command of the base entry may be lost.
            self.view.first, self.view.terms = entries[0][1], [entries[0][2]]
        for command, index, term in entries[1:]:
            self._note(command, index, term)
        self.view.durable_last = self.view.last

    def __getattr__(self, name: str) -> Any:
        # lmqcluster's additional calls for reading and syncing change nothing that is checked.
        return getattr(self._inner, name)

    # Direct access to the methods that are read most often.

    @property
    def first_index(self) -> int:
        return self._inner.first_index

    @property
    def last_index(self) -> int:
        return self._inner.last_index

    @property
    def dirty(self) -> bool:
        return self._inner.dirty

    def term_at(self, index: int) -> int:
        return self._inner.term_at(index)

    def add(self, command: bytes, idx: int, term: int) -> None:
        self._note(command, idx, term)
        self._inner.add(command, idx, term)

    def _note(self, command: bytes, index: int, term: int) -> None:
        view = self.view
        if not view.terms:
            view.first = index
            previous = None
        else:
            previous = view.terms[-1]
            if index != view.last + 1:
                self._watcher.log_broken(f"entry {index} added behind entry {view.last}")
        view.terms.append(term)
        if not self._durable:
            view.durable_last = index
        self._watcher.log_appended(bytes(command), index, term, previous)

    def clear(self) -> None:
        # Only a snapshot empties a log: what it covers is replaced by the snapshot.
        self.view.terms.clear()
        self._inner.clear()

    def deleteEntriesFrom(self, entryFrom: int) -> None:  # noqa: N802, N803 - the library's names
        self._watcher.log_truncated(self.view.first + entryFrom, self.view.terms[entryFrom:])
        del self.view.terms[entryFrom:]
        self._forget_behind()
        self._inner.deleteEntriesFrom(entryFrom)

    def deleteEntriesTo(self, entryTo: int) -> None:  # noqa: N802, N803
        self._watcher.log_compacted()
        del self.view.terms[:entryTo]
        self.view.first += entryTo
        self._inner.deleteEntriesTo(entryTo)

    # Changes that lmqcluster's journals offer beyond the library's.

    def truncate_from(self, index: int) -> None:
        position = index - self.view.first
        self._watcher.log_truncated(index, self.view.terms[position:])
        del self.view.terms[position:]
        self._forget_behind()
        self._inner.truncate_from(index)

    def drop_before(self, index: int) -> list[Any]:
        self._watcher.log_compacted()
        del self.view.terms[: index - self.view.first]
        self.view.first = index
        return self._inner.drop_before(index)

    def reset(self, index: int, term: int) -> None:
        """Replace the whole log by a snapshot."""
        self.view.first, self.view.terms = index, [term]
        # The snapshot is durable, and opening the log aligns it with that.
        self.view.durable_last = self._syncing_to = index
        self._inner.reset(index, term)

    def _forget_behind(self) -> None:
        self.view.durable_last = min(self.view.durable_last, self.view.last)
        self._syncing_to = min(self._syncing_to, self.view.last)

    def take_work(self) -> Callable[[], None]:
        inner = self._inner.take_work()
        self._syncing_to = self.view.last

        def work() -> None:
            inner()
            self.view.durable_last = max(self.view.durable_last, self._syncing_to)

        return work

    def sync(self) -> None:
        if self._inner.dirty:
            self.take_work()()
            self._inner.written()

    # Calls that are only forwarded.

    def __getitem__(self, item: Any) -> Any:
        return self._inner[item]

    def __len__(self) -> int:
        return len(self._inner)

    def _destroy(self) -> None:
        self._inner._destroy()

    def setRaftCommitIndex(self, raftCommitIndex: int) -> None:  # noqa: N802, N803
        self._inner.setRaftCommitIndex(raftCommitIndex)

    def getRaftCommitIndex(self) -> int:  # noqa: N802
        return self._inner.getRaftCommitIndex()

    def setCurrentTerm(self, term: int, votedForNodeId: str | None) -> None:  # noqa: N802, N803
        self._inner.setCurrentTerm(term, votedForNodeId)
        self._watcher.vote_stored(term, votedForNodeId)

    def getCurrentTerm(self) -> int:  # noqa: N802
        return self._inner.getCurrentTerm()

    def getVotedForNodeId(self) -> str | None:  # noqa: N802
        return self._inner.getVotedForNodeId()

    def onOneSecondTimer(self) -> None:  # noqa: N802
        self._inner.onOneSecondTimer()
