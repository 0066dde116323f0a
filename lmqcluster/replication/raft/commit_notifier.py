"""When a leader tells its followers that entries are committed: with the next entries if these come soon, else at once.

A message for the commit index alone costs both sides a write, a wake-up and a step. Under load the next entries follow within a
millisecond or two and carry the index anyway. Whoever waits for an entry, such as the node that proposed it, is told at once.
"""

from __future__ import annotations

__all__ = ["CommitNotifier"]

PATIENCE_S = 0.002
"""How long followers may hear of a commit later than they could."""
_PAUSE_S_MAX = 0.02
_WEIGHT = 0.25


class CommitNotifier:
    """Learns how soon entries follow a commit. Times are those of one steady clock, in seconds."""

    def __init__(self) -> None:
        self._commit = 0
        self._last = 0
        # When the last commit was that no entries have followed yet; 0 if some have.
        self._since_s = 0.0
        self._pause_s = _PAUSE_S_MAX

    def may_wait(self, commit: int, last: int, now_s: float) -> bool:
        """Whether followers need not be told of the commit index `commit` yet; `last` is the log's last entry.

        Call it whenever one of them may have changed.
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
            # It was in vain.
            self._pause_s = _PAUSE_S_MAX
        return False

    def _followed(self, now_s: float) -> None:
        if self._since_s:
            pause_s = min(now_s - self._since_s, _PAUSE_S_MAX)
            self._pause_s += _WEIGHT * (pause_s - self._pause_s)
            self._since_s = 0.0
