"""Checks that nodes whose data directories hold an earlier cluster can find each other at their new addresses."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from lmqcluster.node.config.config_error import ConfigError
from lmqcluster.replication.storage.io.disk import DamagedFileError
from lmqcluster.replication.storage.meta import NodeMeta
from lmqcluster.wire.address import Address

from ..shared.stopped_node import disks_of

__all__ = ["check_addresses"]


def check_addresses(nodes: Mapping[Path, Address]) -> None:
    """Check that a majority of the members of an earlier cluster would run at the addresses that the cluster knows.

    Args:
        nodes: the Raft addresses at which the nodes are to run, by data directory.

    Raises:
        ConfigError: fewer would. The cluster would never have a leader.
    """
    found = {folder: meta for folder in nodes if (meta := _identity(folder)) is not None}
    running = {meta.node_id: str(nodes[folder]) for folder, meta in found.items()}
    for folder, meta in found.items():
        # A cluster of one node corrects its address itself.
        if len(meta.members) <= 1:
            continue
        there = sum(running.get(one) == address for one, address in meta.members.items())
        needed = len(meta.members) // 2 + 1
        if there < needed:
            raise ConfigError(
                f"the node of {folder} belongs to a cluster of {len(meta.members)} nodes at the Raft addresses"
                f" {', '.join(sorted(meta.members.values()))}: these options would start {there} of them there, and"
                f" {needed} are needed; use the --nodes and --offset with which the cluster was created, or another --data-dir"
            )


def _identity(folder: Path) -> NodeMeta | None:
    """Return the identity of the node of a folder; None if there is none, or if its start is to report what is wrong."""
    if not folder.is_dir():
        return None
    try:
        return NodeMeta.read(disks_of(folder)(""))
    except (DamagedFileError, OSError):
        return None
