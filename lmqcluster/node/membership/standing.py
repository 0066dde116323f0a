"""Status of a node in its cluster: the state of the members, and the readiness of the node."""

from __future__ import annotations

from typing import Any

from ...replication.base.status import ReplicaStatus

__all__ = ["cluster_status", "health", "impasse", "outside"]

READY_LAG_MAX = 200
"""Log entries by which a ready node may lag behind the known commit index."""
_LEFT = (
    "this node has left its cluster, or has not joined one yet, and serves nothing; use another node, or let this one join"
    " (lmq-admin join PEER)"
)
_REMOVED = (
    "this node was removed from its cluster and serves nothing; use another node, or let this one join again"
    " (lmq-admin join PEER --discard-data)"
)


def outside(status: ReplicaStatus) -> str | None:
    """Return the reason why the node belongs to no cluster; None if it belongs to one."""
    if status.has_left:
        return _LEFT
    return _REMOVED if status.was_removed else None


def health(status: ReplicaStatus, *, is_stopping: bool) -> list[tuple[str, bool, str]]:
    """Return the readiness checks: (name, passed, detail)."""
    lag, recovering, reason = status.missing_entries, status.is_recovering, outside(status)
    leader = f"leader {status.leader}" if status.leader else impasse(status) or "no leader known"
    return [
        ("running", not is_stopping, "shutting down" if is_stopping else "not shutting down"),
        ("member", reason is None, reason or "belongs to a cluster"),
        ("leader", status.has_leader, leader),
        ("founded", status.is_founded, "founded" if status.is_founded else "no first leader yet"),
        # A node that has just started does not know yet how far it lags.
        ("applied", status.has_caught_up and lag <= READY_LAG_MAX, f"{lag} entries behind"),
        # A rolling restart must wait for this check: if two of three nodes have forgotten entries, the cluster cannot continue.
        (
            "recovered",
            not recovering,
            "has forgotten entries and copies them" if recovering else "holds what it acknowledged",
        ),
    ]


def impasse(status: ReplicaStatus) -> str | None:
    """Return the reason why the reachable members cannot elect a leader; None if none is known."""
    members = status.members
    if status.leader is not None or outside(status) is not None:
        return None
    if status.obstacle is not None:
        return status.obstacle or None
    if not members:
        return (
            "this node was repaired and has heard from no other node yet: start the others. If there are none, restore a backup"
            " (lmq-admin restore) into an empty folder, or delete this one and start over"
        )
    if any(status.reaches(one) and one not in status.about for one in members):
        # A connected member has not announced what it holds yet.
        return None
    forgetful = [one for one in members if status.reaches(one) and status.has_forgotten(one)]
    others = [one for one in members if one not in forgetful]
    if 2 * len(others) > len(members):
        return None
    remembering = [status.name_of(one) for one in others if status.reaches(one)]
    if not remembering:
        missing = ", ".join(sorted(status.name_of(one) for one in others))
        return (
            f"the members that are here are new or have forgotten what they held: they wait for {missing}"
            if others
            else None
        )
    text = f"{len(forgetful)} of {len(members)} members have forgotten what they held, and could outvote what is left"
    if status.durability == "memory":
        return f"{text}: restart {', '.join(remembering)} too, and the cluster starts over"
    return (
        f"{text}. No node can tell whether an acknowledged write is lost, so this is your decision: stop all nodes, make"
        f" {' or '.join(remembering)} go on alone (lmq-admin recover --data-dir DIR), empty the others' folders and let them join"
    )


def cluster_status(status: ReplicaStatus, version: str) -> dict[str, Any]:
    """Return the state of the cluster as the node sees it; `version` is the node's program version."""
    # A node in no cluster lists itself, so that people see which node answered.
    members = status.members or {status.id: status.address}
    quorum = len(members) // 2 + 1
    present = sum(1 for node_id in members if status.reaches(node_id))
    return {
        "self": status.id,
        "leader": status.leader,
        "term": status.term,
        "commit_index": status.commit_index,
        "applied_index": status.applied_index,
        "quorum": quorum,
        "has_quorum": present >= quorum and status.leader is not None,
        "durability": status.durability,
        "version": version,
        "machine_version": status.machine_version,
        "problem": outside(status) or impasse(status),
        "nodes": [_member_status(status, node_id, members[node_id]) for node_id in sorted(members)],
    }


def _member_status(status: ReplicaStatus, node_id: str, address: str) -> dict[str, Any]:
    about = status.about.get(node_id)
    if node_id == status.id:
        state = _own_state(status)
    elif not status.reaches(node_id):
        state = "unreachable"
    elif status.has_forgotten(node_id):
        state = "recovering"
    else:
        state = "leader" if node_id == status.leader else "follower"
    return {
        "id": node_id,
        "name": about.name if about else None,
        "http": (about.http or None) if about else None,
        "rpc": (about.rpc or None) if about else None,
        "raft": address,
        "machine_version": about.machine_version if about else None,
        "state": state,
        "match_index": status.match_indexes.get(node_id),
        "connected": status.reaches(node_id),
    }


def _own_state(status: ReplicaStatus) -> str:
    if status.has_left:
        return "left"
    if status.was_removed:
        return "removed"
    if status.is_installing:
        return "installing"
    return "recovering" if status.is_recovering else status.role
