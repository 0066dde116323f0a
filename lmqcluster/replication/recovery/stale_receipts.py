"""Detection of lost deliveries whose receipts consumers still hold.

In durability ``process`` a power failure removes the end of the log. If a majority lost it, the cluster continues
from an earlier state, in which the numbers of the lost deliveries are free again. The next leader then renews the
salt of message ids, before any other request, so that an old receipt is invalid. If only one member lost it, the
leader sends everything again and no salt is renewed.
"""

from __future__ import annotations

from collections.abc import Collection

from ..storage.meta import NodeMeta

__all__ = ["StaleReceipts"]


class StaleReceipts:
    """Knowledge of one replica about lost deliveries; kept in its identity until the salt is renewed."""

    def __init__(self, meta: NodeMeta, *, recovering: bool) -> None:
        self._meta = meta
        self._recovering = recovering
        self._forgetful: set[str] = set()

    @property
    def are_possible(self) -> bool:
        """Return whether the salt has to be renewed, as far as is known."""
        return self._meta.salt_due is not None

    def heard_forgetful(self, node_id: str) -> None:
        """Record that a peer may have lost entries."""
        self._forgetful.add(node_id)

    def recovered(self, members: Collection[str]) -> None:
        """Note that this node lacks no entries any more. If a majority never lacked any, the cluster lost none."""
        if self._recovering:
            self._recovering = False
            others = self._forgetful.intersection(members)
            if 2 * (len(others) + 1) <= len(members):
                self._meta.save_salt_due(None)

    def renewed(self, index: int) -> None:
        """Note that the entry at `index`, or a snapshot of it, set another salt; entries found at the start do not count."""
        if self._meta.salt_due is not None and index > self._meta.salt_due:
            self._meta.save_salt_due(None)
