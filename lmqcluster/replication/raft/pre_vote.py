"""Pre-votes, so that a node that cannot win does not disturb the term (Raft dissertation, section 9.6)."""

from __future__ import annotations

import random

from pysyncobj import syncobj as library

from ..base.settings import RaftSettings

__all__ = ["PreVote"]

_NEVER = float("-inf")


class PreVote:
    """The pre-vote rounds of one node, and its knowledge of a leader for answers to others.

    Attributes:
        refused_as_stranger: a leader has answered that this node is not a member.
    """

    def __init__(self, settings: RaftSettings, rng: random.Random) -> None:
        self._settings = settings
        self._rng = rng
        self._round = 0
        self._granted: set[str] = set()
        self._again_s = _NEVER
        self._heard_s = _NEVER
        self.refused_as_stranger = False

    def leader_heard(self) -> None:
        """Note a leader's message: no campaign is needed."""
        self._heard_s = library.monotonicTime()
        self.refused_as_stranger = False
        self.end()

    def leader_lost(self) -> None:
        """Note that the link to the leader broke."""
        self._heard_s = _NEVER

    def on_event_loop_stall(self, seconds: float) -> None:
        """Discount a stall, in which this member did not listen, from the time since the leader was heard."""
        self._heard_s = min(self._heard_s + seconds, library.monotonicTime())

    def has_leader(self) -> bool:
        """Return whether a leader was heard so recently that another node's campaign must have a cause at that node."""
        return bool(library.monotonicTime() - self._heard_s < self._settings.election_min_s)

    def is_due(self) -> bool:
        """Return whether another round is due."""
        return bool(library.monotonicTime() >= self._again_s)

    def begin(self) -> int:
        """Begin a round; return its number."""
        settings = self._settings
        self._round += 1
        self._granted = set()
        pause_s = self._rng.uniform(settings.leader_lost_max_s / 2, settings.leader_lost_max_s * 1.5)
        self._again_s = library.monotonicTime() + pause_s
        return self._round

    def granted(self, node_id: str, number: int) -> None:
        """Record that a member would vote for this node."""
        if number == self._round:
            self._granted.add(node_id)

    def won(self, members: int) -> bool:
        """Return whether a majority of this many members, including this one, would vote for this node."""
        return 2 * (len(self._granted) + 1) > members

    def end(self) -> None:
        """Forget the round."""
        self._granted = set()
