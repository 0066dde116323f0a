"""Whether deliveries may be forgotten whose receipts consumers still hold.

In durability ``process`` a power failure takes the end of the log. A majority that lost it goes on from an earlier state, in
which the numbers of the lost deliveries are free again. The next leader then renews the salt of message ids, before anybody's
request, so that an old receipt names nothing. A single member that forgets gets everything back and renews nothing.
"""

from __future__ import annotations

from collections.abc import Collection

from ..storage.meta import NodeMeta

__all__ = ["StaleReceipts"]


class StaleReceipts:
    """What one replica knows of it; kept in its identity until the salt is renewed."""

    def __init__(self, meta: NodeMeta, *, recovering: bool) -> None:
        self._meta = meta
        self._recovering = recovering
        self._forgetful: set[str] = set()

    @property
    def are_possible(self) -> bool:
        """Whether the salt has to be renewed, as far as is known."""
        return self._meta.salt_due is not None

    def heard_forgetful(self, node_id: str) -> None:
        """A peer says that it may have forgotten something."""
        self._forgetful.add(node_id)

    def recovered(self, members: Collection[str]) -> None:
        """This node has forgotten nothing any more. If a majority never had, nor has the cluster."""
        if self._recovering:
            self._recovering = False
            others = self._forgetful.intersection(members)
            if 2 * (len(others) + 1) <= len(members):
                self._meta.save_salt_due(None)

    def renewed(self, index: int) -> None:
        """The entry at `index`, or a snapshot of it, has brought another salt; the log found at the start does not count."""
        if self._meta.salt_due is not None and index > self._meta.salt_due:
            self._meta.save_salt_due(None)
