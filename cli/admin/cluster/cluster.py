"""``lmq-admin status | stats | join | leave | remove | transfer-leader | snapshot``: the cluster as a whole."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any, Final

import click

from ...shared.confirm import confirm, destructive_options
from ...shared.connection.api import Api
from ...shared.connection.reads import Report, reads
from ...shared.connection.target import Target, completes, queue_text, target_options
from ...shared.errors import CliError, ExitCode
from ...shared.output import Column, human_bytes, plural
from ..queues.queue_list import all_queues
from .members import MEMBERSHIP_TIMEOUT_S, change_members, why_no_quorum
from .peer import find_peer

__all__ = ["join", "leave", "node_columns", "remove", "snapshot", "stats", "status", "transfer_leader"]

_NODE_COLUMNS: Final = [
    Column("Node", "node"),
    Column("State", "state"),
    Column("HTTP", "http"),
    Column("MessagePack-RPC", "rpc", rank=2),
    Column("Raft", "raft", rank=3),
    Column("Log index", "match_index", right=True, rank=4),
    Column("Lag", "lag", right=True),
    Column("Up", "uptime_s", right=True, unit="seconds", digits=0, rank=1),
    Column("Memory", "process_bytes", right=True, unit="bytes", rank=1),
    Column("Disk free", "disk_free_bytes", right=True, unit="bytes", rank=1),
    Column("Messages", "stored_bytes", right=True, unit="bytes", extra=True),
    Column("Memory limit", "stored_bytes_max", right=True, unit="bytes", extra=True),
    Column("Kept", "kept_bytes", right=True, unit="bytes", extra=True),
    Column("Disk limit", "kept_bytes_max", right=True, unit="bytes", extra=True),
]
_FIGURES: Final = (
    "uptime_s", "process_bytes", "disk_free_bytes", "stored_bytes", "stored_bytes_max", "kept_bytes", "kept_bytes_max",
)  # fmt: skip
_LOOKS_MAX: Final = 10
"""A node waits a tenth of a second for the vitals of the others; a busy node may need longer."""
_WINDOWS: Final = (("one", "1min"), ("five", "5min"), ("fifteen", "15min"), ("day", "1day"))
_SHOWN_WINDOWS: Final = _WINDOWS[:3]
_STATS_COLUMNS: Final = [
    Column("Queue", "queue", cut="middle"),
    Column("Messages", "size", right=True),
    *(
        Column(f"{kind.capitalize()} {text}", f"{kind}_{text}", right=True, rank=rank, digits=2)
        for kind in ("push", "pull")
        for rank, (_key, text) in zip((0, 2, 3), _SHOWN_WINDOWS, strict=True)
    ),
    Column("Wait median", "retention_median", right=True, rank=1),
    Column("Wait max", "retention_max", right=True, rank=1),
]


def _members(api: Api, _incomplete: str) -> list[object]:
    return [node["name"] or node["id"] for node in api.get("/v1/cluster")["nodes"]]


@click.command()
@click.option("--lmq", "as_lmq", is_flag=True, help="Print the format of LMQ's own lmq-admin status.")
@reads(_NODE_COLUMNS)
def status(target: Target, as_lmq: bool) -> Report:
    """Show the nodes of the cluster.

    Lag is the number of committed log entries that a node has not applied yet. Messages counts towards
    memory_bytes_max; Kept, the snapshots and pages, counts towards disk_bytes_max. Exits with 69 if there is no quorum.

    \b
    Example:
      lmq-admin status --watch 2
      lmq-admin status --columns node,stored_bytes,stored_bytes_max,kept_bytes,kept_bytes_max
    """
    if as_lmq:
        return Report(None, [], [], text="\n".join(_lmq_status(target.api.get("/stats"))))
    cluster = _cluster(target.api)
    failure = None
    if not cluster["has_quorum"]:
        failure = CliError(f"{target.node} {why_no_quorum(cluster)}", ExitCode.UNAVAILABLE)
    return _cluster_report(cluster, failure)


def _cluster(api: Api) -> dict[str, Any]:
    """Return the cluster with the vitals of its reachable nodes."""
    for _ in range(_LOOKS_MAX):
        cluster: dict[str, Any] = api.get("/v1/overview")["cluster"]
        if not any(node["connected"] and node["last_contact_s"] is None for node in cluster["nodes"]):
            break
    return cluster


@click.command(short_help="Show rates and waiting times of all queues.")
@click.option("--lmq", "as_lmq", is_flag=True, help="Print the format of LMQ's own lmq-admin stats.")
@reads(_STATS_COLUMNS)
def stats(target: Target, as_lmq: bool) -> Report:
    """Show rates and waiting times of all queues, as counted by this node.

    Rates are pushes and pulls per second over the last minutes. Waiting times are the seconds for which messages
    delivered in the last minute had been ready (LMQ's retention).

    \b
    Example:
      lmq-admin stats --sort=-push_1min
    """
    answer = target.api.get("/stats")
    if as_lmq:
        return Report(None, [], [], text="\n".join(_lmq_stats(answer)))
    rows = [_stats_row(name, queue) for name, queue in answer["queues"].items()]
    return Report(answer, _STATS_COLUMNS, rows, empty="No queues.")


@click.command(short_help="Make the node join a peer's cluster.")
@click.argument("peer")
@click.option("--discard-data", is_flag=True, help="Discard the messages that the node holds.")
@target_options
def join(target: Target, peer: str, discard_data: bool) -> None:
    """Make the node join the cluster of PEER.

    PEER is an HTTP or Raft address, HOST:PORT; LMQ's lmq@HOST is accepted. The node first copies the cluster's data;
    then it counts towards the quorum. A node that holds messages is refused without --discard-data; on a terminal, the
    command asks.

    \b
    Example:
      lmq-admin --node 10.0.0.2:9980 join 10.0.0.1:9980
    """
    discard_data = discard_data or _confirm_discard(target)
    request = {"peer": find_peer(peer), "discard_data": discard_data}
    cluster = change_members(target.api, "join", request)
    target.print_result(cluster, f"{target.node} is now one of {plural(len(cluster['nodes']), 'node')}.")


@click.command(short_help="Remove the node from its cluster.")
@destructive_options
@target_options
def leave(target: Target, yes: bool, dry_run: bool) -> None:
    """Remove the node from its cluster. The other nodes keep all data.

    The node completes accepted requests; then it is empty and refuses clients until it joins a cluster (lmq-admin
    join), even after a restart. To start it as a new cluster, stop it and delete its data directory. The command asks
    for confirmation; without a terminal it needs --yes.

    \b
    Example:
      lmq-admin --node 10.0.0.3:9980 leave --yes
    """
    if not yes or dry_run:
        others = len(target.api.get("/v1/cluster")["nodes"]) - 1
        what = f"remove {target.node} from its cluster and empty it; {plural(others, 'other node')} would keep all data"
        if not confirm(what, yes=yes, dry_run=dry_run):
            return
    cluster = change_members(target.api, "leave", {})
    target.print_result(cluster, f"{target.node} has left; it is empty and refuses clients until it joins a cluster.")


@click.command(short_help="Remove a dead node from the cluster.")
@click.argument("member", metavar="NODE", shell_complete=completes(_members))
@click.option("--force", is_flag=True, help="Remove the node even if it is alive.")
@destructive_options
@target_options
def remove(target: Target, member: str, force: bool, yes: bool, dry_run: bool) -> None:
    """Remove a dead node from the cluster. NODE is its name or id, as status shows it.

    The command asks for confirmation; without a terminal it needs --yes. For a live node, use leave. If the removed
    node restarts, it is rejected and must join again.

    \b
    Example:
      lmq-admin remove lmq@q3 --dry-run
    """
    if not yes or dry_run:
        nodes = target.api.get("/v1/cluster")["nodes"]
        state = next((node["state"] for node in nodes if member in (node["name"], node["id"])), "unknown to this node")
        what = f"remove {member} ({state}), leaving {plural(len(nodes) - 1, 'node')}"
        if not confirm(what, yes=yes, dry_run=dry_run):
            return
    cluster = change_members(target.api, "remove", {"node": member, "force": force})
    target.print_result(cluster, f"{member} was removed; the cluster now has {plural(len(cluster['nodes']), 'node')}.")


@click.command("transfer-leader", short_help="Transfer leadership to another node.")
@click.argument("member", metavar="[NODE]", required=False, shell_complete=completes(_members))
@target_options
def transfer_leader(target: Target, member: str | None) -> None:
    """Transfer leadership to NODE (name or id), or to the most up-to-date node.

    \b
    Example:
      lmq-admin transfer-leader lmq@q2
    """
    request = {} if member is None else {"to": member}
    cluster = target.api.post("/v1/cluster/transfer", request, timeout_s=MEMBERSHIP_TIMEOUT_S)
    names = {node["id"]: node["name"] or node["id"] for node in cluster["nodes"]}
    target.print_result(cluster, f"{names.get(cluster['leader'], 'another node')} is the leader now.")


@click.command(short_help="Make the node write a snapshot of its state now.")
@target_options
def snapshot(target: Target) -> None:
    """Make the node write a snapshot of its state now, so that it restarts faster and its log shrinks.

    \b
    Example:
      lmq-admin --node 10.0.0.1:9980 snapshot
    """
    info = target.api.post("/v1/snapshots", {"portable": False}, timeout_s=MEMBERSHIP_TIMEOUT_S)
    target.print_result(
        info,
        f"{target.node} has written a snapshot of entry {info['index']:,}, {human_bytes(info['size_bytes'])}.",
    )


def _confirm_discard(target: Target) -> bool:
    """Ask whether the messages that the node holds may be discarded. Without a terminal, the node refuses to discard
    any.
    """
    if not sys.stdin.isatty():
        return False
    queues = list(all_queues(target.api, fields="size"))
    count = sum(queue["size"] for queue in queues)
    if not count:
        return False
    what = f"discard {plural(count, 'message')} in {plural(len(queues), 'queue')} that {target.node} holds"
    return confirm(what, yes=False)


_FEW_NODES: Final = {
    1: "The cluster has one node: while it is down, no request is served; if its disk fails, all data is lost.",
    2: "Two nodes tolerate no failure: while one is down, no request is served. Three nodes tolerate one failure.",
}


def _cluster_report(cluster: Mapping[str, Any], failure: CliError | None) -> Report:
    nodes = sorted(cluster["nodes"], key=lambda node: (node["name"] or "", node["id"]))
    leader = next((node["name"] or node["id"] for node in nodes if node["id"] == cluster["leader"]), None)
    state = f"leader {leader} in term {cluster['term']}" if leader else "no leader"
    if any(node["state"] == "left" for node in nodes):
        leader = None
        state = "not in a cluster"
    count = plural(len(nodes), "node")
    heading = (
        f"{count}, quorum {cluster['quorum']}, {state}, commit index {cluster['commit_index']:,}, "
        f"durability {cluster['durability']}, version {cluster['version']}"
    )
    columns = _NODE_COLUMNS
    if sys.stdout.isatty() and all(node["match_index"] is None for node in nodes):
        # Only the leader knows the log position of the others.
        columns = [column for column in columns if column.key != "match_index"]
    shown = [node_columns(node) for node in nodes]
    rows = [[node[column.key] for column in columns] for node in shown]
    remark = _FEW_NODES.get(len(nodes), "") if cluster["has_quorum"] else ""
    return Report(cluster, columns, rows, heading=heading, remark=remark, failure=failure)


def node_columns(node: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns of a node."""
    # A node that was never reached has no known name; the figures of an unreachable node are outdated.
    is_here = node["state"] != "unreachable"
    vitals = node["vitals"] if is_here and node["vitals"] else {}
    figures = {key: vitals.get(key) for key in _FIGURES}
    return {**node, **figures, "node": node["name"] or node["id"], "lag": node["lag"] if is_here else None}


def _stats_row(name: str, queue: Mapping[str, Any]) -> list[object]:
    figures = queue["stats"]
    rates = [float(figures[kind][key]) for kind in ("push", "pull") for key, _text in _SHOWN_WINDOWS]
    retention = figures["retention"]
    return [queue_text(name), queue["size"], *rates, float(retention["median"]), float(retention["max"])]


def _lmq_status(answer: Mapping[str, Any]) -> Iterator[str]:
    yield f"   All nodes: {', '.join(answer['all_nodes'])}"
    yield f"Active nodes: {', '.join(answer['active_nodes'])}"
    for name, queue in answer["queues"].items():
        props = queue["props"]
        yield ""
        yield f"{name[:40]:<40} {queue['size']:>7} messages {queue['memory']:>15} bytes"
        accum, timeout = float(props["accum"]) / 1000, float(props["timeout"])
        yield f"  accum: {accum}, retry: {props['retry']}, timeout: {timeout}"


def _lmq_stats(answer: Mapping[str, Any]) -> Iterator[str]:
    for name, queue in answer["queues"].items():
        yield name
        figures = queue["stats"]
        for kind in ("push", "pull"):
            rates = ", ".join(f"{text} {figures[kind][key]:.2f}" for key, text in _WINDOWS)
            yield f"  {kind} rate: {rates}"
        retention = figures["retention"]
        yield (
            f"  retention time: min {retention['min']:.3f}, max {retention['max']:.3f}, "
            f"mean {retention['arithmetic_mean']:.3f}, median {retention['median']:.3f}"
        )
