"""Incarnations of a node, which fence its batches: the cluster rejects batches of any incarnation but the latest.

The incarnation grows with every start, from the data directory and the wall clock. If the data directory is an old copy and the
clock is wrong, the cluster may know a later incarnation. The replicated `NodeSequences` contain it, and the node continues
above it.
"""

from __future__ import annotations

import structlog

from ...core.dedup.node_sequences import NodeSequences
from ...replication.storage.meta import NodeMeta
from ..commit.proposer import Carrier, Proposer

__all__ = ["begin", "outlive", "state_replaced"]

log = structlog.get_logger("lmq.proposer")


def begin(carrier: Carrier, meta: NodeMeta, sessions: NodeSequences) -> Proposer:
    """Create the proposer for the current incarnation."""
    origin = meta.origin.encode()
    known = sessions.incarnation(origin)
    if known >= meta.incarnation:
        meta.outlive(known)
    return Proposer(carrier, origin, meta.incarnation)


def outlive(proposer: Proposer, meta: NodeMeta, sessions: NodeSequences, *, is_known: bool = True) -> None:
    """Begin a new incarnation if the cluster knows a later one than the proposer's.

    `is_known` is true if certainly nothing in flight was applied.
    """
    known = sessions.incarnation(proposer.origin)
    if known > proposer.incarnation:
        log.warning(
            "the cluster knows a later life of this node, so this node begins a new one",
            present=proposer.incarnation,
            known=known,
        )
        meta.outlive(known)
        proposer.begin_again(meta.incarnation, is_known=is_known)


def state_replaced(proposer: Proposer, meta: NodeMeta, sessions: NodeSequences) -> None:
    """Resolve the batches in flight after a snapshot was installed."""
    if sessions.incarnation(proposer.origin) > proposer.incarnation:
        # The snapshot does not contain which batches of the current incarnation were applied before the later one.
        outlive(proposer, meta, sessions, is_known=False)
    else:
        proposer.covered(sessions.last_sequence(proposer.origin, proposer.incarnation))
