"""Asking before an election, so that a node that cannot win does not disturb the term (Raft dissertation, section 9.6)."""

from __future__ import annotations

import random

from pysyncobj import syncobj as library

from ..base.settings import RaftSettings

__all__ = ["PreVote"]

_NEVER = float("-inf")


class PreVote:
    """The rounds of one node, and what it knows of a leader when others ask.

    Attributes:
        refused_as_stranger: a leader has answered that this node is no member.
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
        """A leader's message came: no campaign is needed."""
        self._heard_s = library.monotonicTime()
        self.refused_as_stranger = False
        self.end()

    def leader_lost(self) -> None:
        """The link to the leader broke."""
        self._heard_s = _NEVER

    def stood_still(self, seconds: float) -> None:
        """This member has heard nobody for so long because it did not listen."""
        self._heard_s = min(self._heard_s + seconds, library.monotonicTime())

    def has_leader(self) -> bool:
        """Whether a leader was heard so lately that another node's campaign must be its own problem."""
        return bool(library.monotonicTime() - self._heard_s < self._settings.election_min_s)

    def is_due(self) -> bool:
        """Whether it is time for another round."""
        return bool(library.monotonicTime() >= self._again_s)

    def begin(self) -> int:
        """Begin a round; returns its number."""
        settings = self._settings
        self._round += 1
        self._granted = set()
        pause_s = self._rng.uniform(settings.leader_lost_max_s / 2, settings.leader_lost_max_s * 1.5)
        self._again_s = library.monotonicTime() + pause_s
        return self._round

    def granted(self, node_id: str, number: int) -> None:
        """A member would vote for this node."""
        if number == self._round:
            self._granted.add(node_id)

    def won(self, members: int) -> bool:
        """Whether a majority of so many members, this one included, would vote for this node."""
        return 2 * (len(self._granted) + 1) > members

    def end(self) -> None:
        """Forget the round."""
        self._granted = set()
