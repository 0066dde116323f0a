"""Nodes that get the log of a leader and are no members yet."""

from __future__ import annotations

from collections.abc import Iterable, MutableMapping
from collections.abc import Set as AbstractSet

from pysyncobj import syncobj as library
from pysyncobj.transport import Transport

from ..base.membership import PeerNode
from .log_sender import LogSender

__all__ = ["Learners"]


class Learners:
    """A learner counts for nothing, and is forgotten with the leadership, or when nobody asks for it any more.

    Args:
        transport: dials learners.
        sender: sends them the log.
        voters: the other members, as they are at any time.
        matches: what followers are known to hold, likewise.
        patience_s: for how long one question keeps a learner.
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
        """All learners."""
        return self._deadlines.keys()

    def ask(self, node: PeerNode) -> None:
        """Somebody wants the node to be a learner."""
        if node not in self._voters:
            self._deadlines[node] = library.monotonicTime() + self._patience_s
            self._transport.addNode(node)

    def match_index(self, node: PeerNode) -> int:
        """What a learner is known to hold; 0 if nothing is known or it is none."""
        return self._matches.get(node, 0) if node in self._deadlines else 0

    def drop_expired(self) -> None:
        """Forget those for which nobody has asked for too long."""
        now = library.monotonicTime()
        self._drop([node for node, deadline in self._deadlines.items() if deadline < now])

    def drop_all(self) -> None:
        """This node does not lead."""
        self._drop(list(self._deadlines))

    def promote(self, node: PeerNode) -> None:
        """The node is a member now, or was never a learner."""
        self._deadlines.pop(node, None)

    def clear(self) -> None:
        """A new leadership begins; whoever is still wanted is asked for again."""
        self._deadlines.clear()

    def _drop(self, nodes: Iterable[PeerNode]) -> None:
        for node in nodes:
            del self._deadlines[node]
            if node not in self._voters:
                self._sender.forget(node)
                self._matches.pop(node, None)
                self._transport.dropNode(node)
