"""What a node that has just started lacks of the log that its leader has, and when it may take part again."""

from __future__ import annotations

from ..base.membership import PeerNode

__all__ = ["CatchUp", "Recovery"]

Contact = tuple[PeerNode, int]
"""A leader and its term."""


class Recovery:
    """Keeps a node that has forgotten something from voting until it holds the leader's log as of their first contact.

    Args:
        recovering: it has forgotten entries that it may have acknowledged (restart without a durable log).
        forgetful: it may have forgotten its term and vote too (a member that lost its disk is not told from a new one).

    Attributes:
        is_recovering: whether it still lacks such entries.
        is_forgetful: whether what it acknowledges does not count yet.
    """

    def __init__(self, *, recovering: bool, forgetful: bool) -> None:
        self.is_recovering = recovering or forgetful
        self.is_forgetful = forgetful
        self._contact: Contact | None = None
        self._target = 0

    def meet(self, leader: PeerNode, term: int, last: int) -> None:
        """A leader whose log ends at `last` was heard: at their first contact, note what the node must hold to be trusted.

        If it may have forgotten its vote too, the leader may be one that has lost its place to another with that vote. It is not
        if it commits, without this node, an entry that it did not have yet.
        """
        if self.is_recovering and self._contact != (leader, term):
            self._contact = (leader, term)
            self._target = last + self.is_forgetful

    def holds(self, verified: int, committed: int) -> None:
        """The node holds the leader's log up to `verified`, and `committed` is committed of it."""
        if self.is_recovering and (committed if self.is_forgetful else verified) >= self._target:
            self.end()

    def end(self) -> None:
        """The node takes part fully."""
        self.is_recovering = self.is_forgetful = False


class CatchUp:
    """Tells when a node has applied what its leader had when they first met.

    Attributes:
        target: the index up to which the node has to apply; None before it has met a leader.
        is_done: whether it has.
    """

    def __init__(self) -> None:
        self.target: int | None = None
        self.is_done = False
        self._contact: Contact | None = None

    def meet(self, leader: PeerNode, term: int, last: int) -> None:
        """A leader whose log ends at `last` was heard."""
        if not self.is_done and self._contact != (leader, term):
            self._contact, self.target = (leader, term), last

    def lead(self, index: int) -> None:
        """The node leads itself, with its own first entry at `index`: what is before that is committed with it."""
        if not self.is_done:
            self.target = index

    def applied(self, index: int) -> None:
        """The node has applied everything up to `index`."""
        if not self.is_done and self.target is not None and index >= self.target:
            self.is_done = True
