"""Timing of a leader's commit index: sent with the next entries if these come soon, otherwise immediately.

A message for the commit index alone costs both sides a write, a wake-up and a step. Under load the next entries
follow within a millisecond or two and carry the index anyway. A follower that waits for an entry, such as the node
that proposed it, receives the index immediately.
"""

from __future__ import annotations

__all__ = ["CommitNotifier"]

PATIENCE_S = 0.002
"""Longest delay of a commit index."""
_PAUSE_S_MAX = 0.02
_WEIGHT = 0.25


class CommitNotifier:
    """Estimates how soon entries follow a commit. Times are those of one steady clock, in seconds."""

    def __init__(self) -> None:
        self._commit = 0
        self._last = 0
        # Time of the last commit that no entries have followed yet; 0 if some have.
        self._since_s = 0.0
        self._pause_s = _PAUSE_S_MAX

    def may_wait(self, commit: int, last: int, now_s: float) -> bool:
        """Return whether sending the commit index `commit` may wait; `last` is the log's last entry.

        Call this whenever one of the two may have changed.
        """
        if last != self._last:
            self._last = last
            self._followed(now_s)
        if commit != self._commit:
            self._commit = commit
            self._since_s = now_s
        if not self._since_s:
            return False
        if now_s - self._since_s < PATIENCE_S:
            return self._pause_s < PATIENCE_S
        if self._pause_s < PATIENCE_S:
            # No entries came in time.
            self._pause_s = _PAUSE_S_MAX
        return False

    def _followed(self, now_s: float) -> None:
        if self._since_s:
            pause_s = min(now_s - self._since_s, _PAUSE_S_MAX)
            self._pause_s += _WEIGHT * (pause_s - self._pause_s)
            self._since_s = 0.0
