"""How a node stands in its cluster: what it says of itself and of the other members, and whether it is ready."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .changes import outside

if TYPE_CHECKING:
    from ..node import Node

__all__ = ["cluster_status", "health", "impasse"]

READY_LAG_MAX = 200
"""Log entries that a ready node may lag behind what it knows to be committed."""


def health(node: Node) -> list[tuple[str, bool, str]]:
    """Named checks of readiness: (name, passed, detail)."""
    core, machine = node.replica.core, node.replica.machine
    leader = core.leader_id()
    lag = core.missing_entries()
    recovering = core.is_recovering()
    reason = outside(node)
    return [
        ("running", not node.is_stopping, "shutting down" if node.is_stopping else "not shutting down"),
        ("member", reason is None, reason or "belongs to a cluster"),
        ("leader", node.has_leader(), f"leader {leader}" if leader else impasse(node) or "no leader known"),
        ("founded", bool(machine.salt), "founded" if machine.salt else "no first leader yet"),
        # A node that has just started does not know yet how much it lacks.
        ("applied", core.has_caught_up() and lag <= READY_LAG_MAX, f"{lag} entries behind"),
        # Whoever restarts node after node has to wait for this one: two of three that have forgotten could not go on.
        (
            "recovered",
            not recovering,
            "has forgotten entries and copies them" if recovering else "holds what it acknowledged",
        ),
    ]


def impasse(node: Node) -> str | None:
    """What keeps the members that can be reached from electing a leader; None if nothing but time is known to."""
    replica = node.replica
    members = replica.core.members()
    if replica.core.leader_id() is not None or outside(node) is not None:
        return None
    if not members:
        return (
            "this node was repaired and has heard from no other node yet: start the others. If there are none, restore a backup"
            " (lmq-admin restore) into an empty folder, or delete this one and start over"
        )
    connected = replica.transport.connected_ids() | {node.id}
    forgetful = [one for one in members if one in connected and _has_forgotten(node, one)]
    others = [one for one in members if one not in forgetful]
    if 2 * len(others) > len(members):
        return None
    remembering = [node.name_of(one) for one in others if one in connected]
    if not remembering:
        missing = ", ".join(sorted(node.name_of(one) for one in others))
        return (
            f"the members that are here are new or have forgotten what they held: they wait for {missing}"
            if others
            else None
        )
    text = f"{len(forgetful)} of {len(members)} members have forgotten what they held, and could outvote what is left"
    if not replica.storage.durable:
        return f"{text}: restart {', '.join(remembering)} too, and the cluster starts over"
    return (
        f"{text}. Whether an acknowledged write is lost nobody can tell, so this is yours to decide: stop all nodes, make"
        f" {' or '.join(remembering)} go on alone (lmq-admin recover --data-dir DIR), empty the others' folders and let them join"
    )


def _has_forgotten(node: Node, member: str) -> bool:
    if member == node.id:
        return node.replica.core.is_recovering()
    about = node.replica.peers.get(member)
    return about is not None and about.recovering


def cluster_status(node: Node) -> dict[str, Any]:
    """The cluster as the node sees it."""
    replica = node.replica
    core = replica.core
    # A node that is in no cluster shows itself, so that people see where they are.
    members = core.members() or {node.id: node.about.raft}
    connected = replica.transport.connected_ids() | {node.id}
    quorum = len(members) // 2 + 1
    present = sum(1 for node_id in members if node_id in connected)
    return {
        "self": node.id,
        "leader": core.leader_id(),
        "term": core.term(),
        "commit_index": core.commit_index(),
        "applied_index": core.applied_index(),
        "quorum": quorum,
        "has_quorum": present >= quorum and core.leader_id() is not None,
        "durability": node.config.durability,
        "version": node.version,
        "machine_version": replica.machine.version,
        "problem": outside(node) or impasse(node),
        "nodes": [_member_status(node, node_id, members[node_id], connected) for node_id in sorted(members)],
    }


def _member_status(node: Node, node_id: str, address: str, connected: set[str]) -> dict[str, Any]:
    replica = node.replica
    core = replica.core
    about = node.about if node_id == node.id else replica.peers.get(node_id)
    if node_id == node.id:
        state = _own_state(node)
    elif node_id not in connected:
        state = "unreachable"
    elif node_id in replica.peers and replica.peers[node_id].recovering:
        state = "recovering"
    else:
        state = "leader" if node_id == core.leader_id() else "follower"
    return {
        "id": node_id,
        "name": about.name if about else None,
        "http": (about.http or None) if about else None,
        "rpc": (about.rpc or None) if about else None,
        "raft": address,
        "machine_version": about.machine_version if about else None,
        "state": state,
        "match_index": core.match_index(node_id),
        "connected": node_id in connected,
    }


def _own_state(node: Node) -> str:
    core = node.replica.core
    if node.has_left:
        return "left"
    if core.was_removed():
        return "removed"
    if core.is_installing():
        return "installing"
    return "recovering" if core.is_recovering() else core.state()
