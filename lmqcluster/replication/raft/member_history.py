"""The members of the cluster at each place of the log."""

from __future__ import annotations

from collections.abc import Mapping

from ..base.membership import apply_change
from ..storage.journal.journal import Journal

__all__ = ["MemberHistory"]


class MemberHistory:
    """Members by id, with their Raft addresses: those at the base of the log, and the changes in its entries.

    Args:
        base: the members at the base of the log.
    """

    def __init__(self, journal: Journal, base: Mapping[str, str]) -> None:
        self._journal = journal
        self._base = dict(base)

    def at(self, index: int) -> dict[str, str]:
        """Return the members by the entries up to `index`, which is in the log."""
        members = self._base
        for change_index, command in self._journal.changes:
            if change_index <= index:
                members = apply_change(members, command)
        return dict(members)

    def drop_before(self, index: int) -> None:
        """Make the entry at `index` the base of the log."""
        for _, command in self._journal.drop_before(index):
            self._base = apply_change(self._base, command)

    def begin(self, base: Mapping[str, str]) -> None:
        """Set the members at a new base of the log."""
        self._base = dict(base)
