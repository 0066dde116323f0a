"""Addresses of members that have moved: a node dials the announced address, and the leader adds it to the Raft log."""

from __future__ import annotations

from collections.abc import Mapping

import structlog

from .base.membership import PeerNode
from .base.node_info import NodeInfo
from .peers.transport import PeerTransport
from .raft.core import RaftCore

__all__ = ["MemberAddresses"]

log = structlog.get_logger("lmq.replica")


class MemberAddresses:
    """Keeps the addresses of one member's peers up to date."""

    def __init__(self, core: RaftCore, transport: PeerTransport, peers: Mapping[str, NodeInfo]) -> None:
        self._core = core
        self._transport = transport
        self._peers = peers

    def follow(self, node_id: str) -> None:
        """Dial a member at the address that it announces, if that differs from the known one."""
        told = self._peers[node_id].raft
        if self._core.members().get(node_id, told) != told:
            self._transport.addNode(PeerNode(node_id, told))
            self.tell(node_id, told)

    def tell(self, node_id: str, told: str) -> None:
        """As the leader, write the address of a member to the log."""
        known = self._core.members().get(node_id)
        if known is None or not told or known == told:
            return
        log.info("member address changed", peer=node_id, known=known, address=told)
        self._core.propose_change("add", node_id, told, lambda _done: None)
