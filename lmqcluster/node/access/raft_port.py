"""Protection of the Raft port, because a peer can do everything without a token.

If tokens are in use, the port accepts only peers that present the cluster secret or a certificate. A single node without them
closes the port, since it has no peers. A cluster of several nodes cannot create tokens until its nodes have a secret.
"""

from __future__ import annotations

from collections.abc import Collection

import structlog

from ...replication.peers.security import PeerSecurity
from ...replication.replica import Replica
from ...wire.errors import LmqError
from .access import Access

__all__ = ["allow_tokens", "check", "follow", "may_be_open"]

log = structlog.get_logger("lmq.membership")

_REMEDY = "set LMQ_CLUSTER_SECRET_FILE (or LMQ_RAFT_TLS_CA) on all nodes, and restart them"
_WHY = "clients need tokens, and without a cluster secret anybody on this machine could get round them through the Raft port"


def may_be_open(security: PeerSecurity, access: Access) -> bool:
    """Return whether peers may connect."""
    return security.keeps_strangers_out or access.anonymous is not None


def check(security: PeerSecurity, access: Access, members: Collection[str]) -> None:
    """Refuse to start as one of several nodes if the Raft port lets local processes bypass tokens.

    Raises:
        ValueError: the text names the remedy.
    """
    if may_be_open(security, access):
        return
    if len(members) > 1:
        raise ValueError(f"{_WHY}: {_REMEDY}")
    log.warning("Raft port stays closed", reason=_WHY, remedy=_REMEDY)


def follow(security: PeerSecurity, access: Access, replica: Replica) -> None:
    """Close the Raft port if a change of the tokens requires it."""
    if not may_be_open(security, access) and replica.transport.is_listening:
        log.warning("Raft port closed", reason=_WHY, remedy=_REMEDY)
        replica.transport.stop_listening()


def allow_tokens(security: PeerSecurity, members: Collection[str]) -> None:
    """Refuse to create a token that local processes could bypass through the Raft port.

    Raises:
        LmqError: ``conflict``.
    """
    if security.keeps_strangers_out or len(members) == 1:
        return
    text = "the nodes of this cluster have no secret, so anybody on their machine could get round tokens through the Raft port"
    raise LmqError("conflict", f"{text}: {_REMEDY}; then make tokens", retryable=False)
