"""Health checks of the cluster and of this node, and whether the node can be stopped safely."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import NamedTuple

from ..core.owners.quotas import Quotas
from ..replication.base.status import ReplicaStatus
from .config.config import NodeConfig
from .membership.standing import impasse, outside
from .process.disk_budget import DiskBudget, size_text

__all__ = ["Check", "run_checks"]

DISK_FREE_BYTES_MIN = 1 << 30
DISK_FREE_SHARE_MIN = 0.05
MEMORY_SHARE_MAX = 0.8
QUOTA_SHARE_MAX = 0.8
LAG_MAX = 1000
_GIB = 1 << 30


class Check(NamedTuple):
    """The result of one check: its name, whether it passed, a description and the figures behind it."""

    name: str
    ok: bool
    detail: str
    figures: dict[str, int]


def run_checks(
    status: ReplicaStatus,
    config: NodeConfig,
    stored_bytes: int,
    budget: DiskBudget,
    quotas: Quotas,
    *,
    names_owners: bool,
) -> tuple[list[Check], bool]:
    """Check this node and the cluster as it sees it; also return whether the cluster keeps its quorum without this node.

    Args:
        stored_bytes: memory that the stored messages take.
        budget: the disk space that the node uses.
        quotas: the usage of each client against its limits.
        names_owners: whether the client may see the names of principals.
    """
    stop = _stop(status)
    return [
        _leader(status),
        _members(status, config),
        _lag(status),
        _disk(config.data_dir),
        _kept(budget),
        _memory(stored_bytes, config.memory_bytes_max),
        _quota(quotas, names_owners=names_owners),
        _snapshot(status),
        stop,
    ], stop.ok


def _leader(status: ReplicaStatus) -> Check:
    reason = outside(status)
    if reason is not None:
        return Check("leader", False, reason, {})
    problem = impasse(status) or "no leader is known"
    return Check(
        "leader", status.has_leader, f"{status.name_of(status.leader)} leads" if status.leader else problem, {}
    )


def _members(status: ReplicaStatus, config: NodeConfig) -> Check:
    bad = sorted(status.name_of(one) for one in status.members if not status.is_able(one))
    count = len(status.members)
    if not count:
        return Check("members", False, status.obstacle or "this node is in no cluster", {"members": 0, "able": 0})
    figures = {"members": count, "able": count - len(bad)}
    if bad:
        return Check("members", False, f"not reachable or not up to date: {', '.join(bad)}", figures)
    text = f"all {count} can be reached and vote" if count > 1 else "this node is the only one"
    if count == 1 and config.others():
        # This happens after a restore with the previous configuration.
        others = ", ".join(map(str, config.others()))
        text = f"{text}: {others} in peers are no members; for them to be, they join (lmq-admin join)"
    return Check("members", True, text, figures)


def _lag(status: ReplicaStatus) -> Check:
    commit = status.commit_index
    lags = {status.id: commit - status.applied_index}
    lags |= {one: max(0, commit - match) for one, match in status.match_indexes.items() if one in status.connected}
    worst = max(lags, key=lambda one: lags[one])
    figures = {"entries": lags[worst]}
    if lags[worst] == 0:
        return Check("lag", True, "no reachable member is behind, as far as this node knows", figures)
    text = f"{status.name_of(worst)} is {lags[worst]:,} log entries behind"
    return Check("lag", lags[worst] <= LAG_MAX, text, figures)


def _disk(folder: Path) -> Check:
    usage = shutil.disk_usage(folder)
    ok = usage.free >= min(DISK_FREE_BYTES_MIN, int(usage.total * DISK_FREE_SHARE_MIN))
    figures = {"free_bytes": usage.free, "total_bytes": usage.total}
    return Check("disk", ok, f"{usage.free / _GIB:.1f} GiB of {usage.total / _GIB:.1f} GiB free", figures)


def _kept(budget: DiskBudget) -> Check:
    """Check the disk space that counts toward ``disk_bytes_max``."""
    used, limit = budget.used_bytes, budget.limit_bytes
    text = f"snapshots and pages take {size_text(used)}, {size_text(limit)} are allowed"
    if budget.shortage:
        text = f"pushes are refused: {budget.shortage}"
    return Check("disk limit", not budget.is_near, text, {"used_bytes": used, "max_bytes": limit})


def _memory(used: int, limit: int) -> Check:
    text = f"messages take {size_text(used)} of {size_text(limit)}"
    if used > limit:
        text = f"pushes are refused: {text}"
    return Check("memory", used <= MEMORY_SHARE_MAX * limit, text, {"used_bytes": used, "max_bytes": limit})


def _quota(quotas: Quotas, *, names_owners: bool) -> Check:
    kind, owner, used = quotas.fullest()
    limit = quotas.LIMITS[kind]
    holder = "clients without a token" if not owner else "a principal"
    if owner and names_owners:
        holder = f"principal {owner.decode(errors='backslashreplace')}"
    text = f"closest to its limit: {holder}, with {used:,} of {limit:,} {kind.value} ({100 * used / limit:.0f} %)"
    return Check("quota", used <= QUOTA_SHARE_MAX * limit, text, {"used": used, "max": limit})


def _snapshot(status: ReplicaStatus) -> Check:
    if status.durability == "memory":
        return Check(
            "durability", True, "memory: what a majority of the nodes holds is lost when they stop together", {}
        )
    index, log_bytes = status.snapshot_index, status.log_bytes
    text = f"newest snapshot is of entry {index}" if index else "no snapshot yet"
    text = f"{status.durability}; {text}, the log holds {size_text(log_bytes)}"
    return Check("durability", True, text, {"log_bytes": log_bytes})


def _stop(status: ReplicaStatus) -> Check:
    members = status.members
    if outside(status) is not None or status.obstacle is not None:
        return Check("safe to stop", True, "nothing depends on this node, it is in no cluster", {})
    others = [one for one in members if one != status.id]
    able = sum(1 for one in others if status.is_able(one))
    if not others:
        return Check("safe to stop", False, "this node is alone: while it is stopped nothing is served", {})
    needed = len(members) // 2 + 1
    if able >= needed:
        return Check("safe to stop", True, f"{able} other members can vote, {needed} are needed", {})
    others_able = "1 other member" if able == 1 else f"{able} other members"
    if able + 1 < needed:
        text = f"the cluster has no quorum: {others_able} can vote, {needed} members are needed; keep this node running"
        return Check("safe to stop", False, text, {})
    text = f"only {others_able} can vote, {needed} are needed: stopping this node stops the cluster"
    return Check("safe to stop", False, text, {})
