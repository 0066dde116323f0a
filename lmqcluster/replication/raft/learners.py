"""Nodes that receive a leader's log and are not members yet."""

from __future__ import annotations

from collections.abc import Iterable, MutableMapping
from collections.abc import Set as AbstractSet

from pysyncobj import syncobj as library
from pysyncobj.transport import Transport

from ..base.membership import PeerNode
from .log_sender import LogSender

__all__ = ["Learners"]


class Learners:
    """Learners of a leader. They count for nothing and are dropped with the leadership or when requests cease.

    Args:
        transport: dials learners.
        sender: sends them the log.
        voters: the other members; a live view.
        matches: highest index that each follower is known to hold; a live view.
        patience_s: how long one request keeps a learner.
    """

    def __init__(
        self,
        transport: Transport,
        sender: LogSender,
        voters: AbstractSet[PeerNode],
        matches: MutableMapping[PeerNode, int],
        patience_s: float,
    ) -> None:
        self._transport = transport
        self._sender = sender
        self._voters = voters
        self._matches = matches
        self._patience_s = patience_s
        self._deadlines: dict[PeerNode, float] = {}

    @property
    def nodes(self) -> AbstractSet[PeerNode]:
        """Return all learners."""
        return self._deadlines.keys()

    def ask(self, node: PeerNode) -> None:
        """Make the node a learner, or keep it one."""
        if node not in self._voters:
            self._deadlines[node] = library.monotonicTime() + self._patience_s
            self._transport.addNode(node)

    def match_index(self, node: PeerNode) -> int:
        """Return the highest index that a learner is known to hold; 0 if unknown or the node is not a learner."""
        return self._matches.get(node, 0) if node in self._deadlines else 0

    def drop_expired(self) -> None:
        """Drop learners that have not been requested for too long."""
        now = library.monotonicTime()
        self._drop([node for node, deadline in self._deadlines.items() if deadline < now])

    def drop_all(self) -> None:
        """Drop all learners, as this node does not lead."""
        self._drop(list(self._deadlines))

    def promote(self, node: PeerNode) -> None:
        """Note that the node is a member now, or was never a learner."""
        self._deadlines.pop(node, None)

    def clear(self) -> None:
        """Forget all learners at the start of a leadership; those still wanted are requested again."""
        self._deadlines.clear()

    def _drop(self, nodes: Iterable[PeerNode]) -> None:
        for node in nodes:
            del self._deadlines[node]
            if node not in self._voters:
                self._sender.forget(node)
                self._matches.pop(node, None)
                self._transport.dropNode(node)
