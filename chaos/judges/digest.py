"""Compares the states of all members byte for byte: digests of their snapshots of the same entry must be equal."""

from __future__ import annotations

import hashlib
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from ..nodes.node_process import NodeProcess, ask

__all__ = ["Digest", "digests_agree", "state_digest"]

_ATTEMPTS = 40
_REST_S = 0.25
_SNAPSHOT_S = 60.0


@dataclass(frozen=True, slots=True)
class Digest:
    """The state of one node after the entry of an index."""

    node: str
    index: int
    sha256: str


def state_digest(node: NodeProcess) -> Digest:
    """Make a node write a snapshot, and return its digest.

    Raises:
        OSError: the snapshot cannot be read.
    """
    info = node.get_json("/v1/snapshots", body={}, timeout_s=_SNAPSHOT_S)
    total = hashlib.sha256()
    for number in range(info["blocks"]):
        status, block = ask(node.ports.http, f"/v1/snapshots/{info['index']}/blocks/{number}", timeout_s=_SNAPSHOT_S)
        if status != 200:
            raise OSError(f"{node.name} answered {status} to block {number} of its snapshot of entry {info['index']}")
        total.update(block)
    return Digest(node.name, int(info["index"]), total.hexdigest())


def digests_agree(nodes: Sequence[NodeProcess]) -> tuple[bool | None, list[Digest]]:
    """Compare the states of all nodes. The cluster should be idle, so that all have a snapshot of the same entry soon.

    Returns:
        Whether they agree, None if there are no snapshots of the same entry; and the digests.
    """
    by_index: dict[int, dict[str, Digest]] = defaultdict(dict)
    for _ in range(_ATTEMPTS):
        for node in nodes:
            try:
                digest = state_digest(node)
            except (OSError, ValueError):
                continue
            same = by_index[digest.index]
            same[node.name] = digest
            found = list(same.values())
            if len({one.sha256 for one in found}) > 1:
                return False, found
            if len(found) == len(nodes):
                return True, found
        time.sleep(_REST_S)
    return None, [digest for same in by_index.values() for digest in same.values()]
