"""Catch-up of a node that has just started with its leader's log, and when the node may take part again."""

from __future__ import annotations

from ..base.membership import PeerNode

__all__ = ["CatchUp", "Recovery"]

Contact = tuple[PeerNode, int]
"""A leader and its term."""


class Recovery:
    """Keeps a node that has lost entries from voting until it holds the leader's log as of their first contact.

    Args:
        recovering: the node has lost entries that it may have acknowledged (restart without a durable log).
        forgetful: the node may have lost its term and vote too. A member that lost its disk looks like a new one.

    Attributes:
        is_recovering: whether the node still lacks such entries.
        is_forgetful: whether acknowledgements of the node do not count yet.
    """

    def __init__(self, *, recovering: bool, forgetful: bool) -> None:
        self.is_recovering = recovering or forgetful
        self.is_forgetful = forgetful
        self._contact: Contact | None = None
        self._target = 0

    def meet(self, leader: PeerNode, term: int, last: int) -> None:
        """Note, at first contact with a leader whose log ends at `last`, the index that makes the node trusted.

        If the node may have lost its vote too, the leader may be an old one, deposed by another that was elected with that
        vote. The leader is current if it commits, without this node, an entry that it did not have at first contact.
        """
        if self.is_recovering and self._contact != (leader, term):
            self._contact = (leader, term)
            self._target = last + self.is_forgetful

    def holds(self, verified: int, committed: int) -> None:
        """End recovery if the node, which matches the leader's log up to `verified`, holds enough of it.

        `committed` is the end of the committed part.
        """
        if self.is_recovering and (committed if self.is_forgetful else verified) >= self._target:
            self.end()

    def end(self) -> None:
        """Make the node take part fully."""
        self.is_recovering = self.is_forgetful = False


class CatchUp:
    """Detects when a node has applied the entries that its leader had at their first contact.

    Attributes:
        target: the index up to which the node has to apply; None before it has met a leader.
        is_done: whether it has.
    """

    def __init__(self) -> None:
        self.target: int | None = None
        self.is_done = False
        self._contact: Contact | None = None

    def meet(self, leader: PeerNode, term: int, last: int) -> None:
        """Note the target on first contact with a leader whose log ends at `last`."""
        if not self.is_done and self._contact != (leader, term):
            self._contact, self.target = (leader, term), last

    def lead(self, index: int) -> None:
        """Note that this node leads, with its first own entry at `index`, which commits all entries before it."""
        if not self.is_done:
            self.target = index

    def applied(self, index: int) -> None:
        """Note that the node has applied every entry up to `index`."""
        if not self.is_done and self.target is not None and index >= self.target:
            self.is_done = True
