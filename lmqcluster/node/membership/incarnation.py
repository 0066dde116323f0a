"""Keeps a node heard: its batches belong to an incarnation, and the cluster takes none of one that is not its latest.

The incarnation grows with every start, by the data directory and by the wall clock. If the folder is an old copy and the
clock is wrong, the cluster may know a later one. The replicated sessions tell which, and the node goes on above it.
"""

from __future__ import annotations

import structlog

from ...core.dedup.node_sequences import NodeSequences
from ...replication.storage.meta import NodeMeta
from ..commit.proposer import Carrier, Proposer

__all__ = ["begin", "outlive", "state_replaced"]

log = structlog.get_logger("lmq.proposer")


def begin(carrier: Carrier, meta: NodeMeta, sessions: NodeSequences) -> Proposer:
    """The proposer of a new life."""
    origin = meta.origin.encode()
    known = sessions.incarnation(origin)
    if known >= meta.incarnation:
        meta.outlive(known)
    return Proposer(carrier, origin, meta.incarnation)


def outlive(proposer: Proposer, meta: NodeMeta, sessions: NodeSequences, *, is_known: bool = True) -> None:
    """Begin a new incarnation if the cluster knows a later one than that of the proposer.

    `is_known` is whether nothing that is in flight was applied.
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
    """A snapshot was installed."""
    if sessions.incarnation(proposer.origin) > proposer.incarnation:
        # It does not tell what of the present incarnation was applied before the later one.
        outlive(proposer, meta, sessions, is_known=False)
    else:
        proposer.covered(sessions.last_sequence(proposer.origin, proposer.incarnation))
