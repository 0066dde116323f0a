"""Whether the cluster is well, and whether this node may be stopped: what an operator asks before touching anything."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, NamedTuple

from .membership.changes import outside
from .membership.standing import impasse

if TYPE_CHECKING:
    from .node import Node

__all__ = ["Check", "run_checks"]

DISK_FREE_BYTES_MIN = 1 << 30
DISK_FREE_SHARE_MIN = 0.05
MEMORY_SHARE_MAX = 0.8
LAG_MAX = 1000


class Check(NamedTuple):
    """One finding: what was looked at, whether it is well, what was seen, and the figures behind it."""

    name: str
    ok: bool
    detail: str
    figures: dict[str, int]


def run_checks(node: Node) -> tuple[list[Check], bool]:
    """All checks of this node and of the cluster as it sees it, and whether the others could go on without this node."""
    stop = _stop(node)
    checks = [_leader(node), _members(node), _lag(node), _disk(node), _memory(node), _snapshot(node), stop]
    return checks, stop.ok


def _leader(node: Node) -> Check:
    reason = outside(node)
    if reason is not None:
        return Check("leader", False, reason, {})
    leader = node.replica.core.leader_id()
    problem = impasse(node) or "no leader is known"
    return Check("leader", node.has_leader(), f"{node.name_of(leader)} leads" if leader else problem, {})


def _members(node: Node) -> Check:
    replica = node.replica
    bad = sorted(node.name_of(one) for one in replica.core.members() if not replica.is_able(one))
    count = len(replica.core.members())
    if not count:
        return Check("members", False, "this node is in no cluster", {"members": 0, "able": 0})
    figures = {"members": count, "able": count - len(bad)}
    if bad:
        return Check("members", False, f"not reachable or not up to date: {', '.join(bad)}", figures)
    text = f"all {count} can be reached and count" if count > 1 else "this node is the only one"
    return Check("members", True, text, figures)


def _lag(node: Node) -> Check:
    core = node.replica.core
    commit = core.commit_index()
    lags = {node.id: commit - core.applied_index()}
    for one in core.members():
        match = core.match_index(one)
        if match is not None and one in node.replica.transport.connected_ids():
            lags[one] = max(0, commit - match)
    worst = max(lags, key=lambda one: lags[one])
    figures = {"entries": lags[worst]}
    if lags[worst] == 0:
        return Check("lag", True, "no reachable member is behind, as far as this node knows", figures)
    return Check("lag", lags[worst] <= LAG_MAX, f"{node.name_of(worst)} is {lags[worst]:,} log entries behind", figures)


def _disk(node: Node) -> Check:
    usage = shutil.disk_usage(node.config.data_dir)
    ok = usage.free >= min(DISK_FREE_BYTES_MIN, int(usage.total * DISK_FREE_SHARE_MIN))
    figures = {"free_bytes": usage.free, "total_bytes": usage.total}
    return Check("disk", ok, f"{usage.free / 1e9:.1f} GB of {usage.total / 1e9:.1f} GB free", figures)


def _memory(node: Node) -> Check:
    used, limit = node.service.stored_bytes, node.config.memory_bytes_max
    text = f"messages take {used / 1e6:.0f} MB of {limit / 1e6:.0f} MB"
    return Check("memory", used <= MEMORY_SHARE_MAX * limit, text, {"used_bytes": used, "max_bytes": limit})


def _snapshot(node: Node) -> Check:
    if not node.replica.storage.durable:
        return Check(
            "durability", True, "memory: what a majority of the nodes holds is lost when they stop together", {}
        )
    latest, log_bytes = node.replica.snapshots.latest(), node.replica.journal.size_bytes
    text = "no snapshot yet" if latest is None else f"newest snapshot is of entry {latest.index}"
    text = f"{node.config.durability}; {text}, the log holds {log_bytes / 1e6:.0f} MB"
    return Check("durability", True, text, {"log_bytes": log_bytes})


def _stop(node: Node) -> Check:
    replica = node.replica
    members = replica.core.members()
    if outside(node) is not None:
        return Check("safe to stop", True, "nothing depends on this node, it is in no cluster", {})
    others = [one for one in members if one != node.id]
    able = sum(1 for one in others if replica.is_able(one))
    if not others:
        return Check("safe to stop", False, "this node is alone: while it is stopped nothing is served", {})
    needed = len(members) // 2 + 1
    if able >= needed:
        return Check("safe to stop", True, f"the {able} others that count are enough, {needed} are needed", {})
    counting = "1 other counts" if able == 1 else f"{able} others count"
    text = f"only {counting}, {needed} are needed: stopping this node stops the cluster"
    return Check("safe to stop", False, text, {})
