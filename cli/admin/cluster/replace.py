"""``lmq-admin replace``: puts a new node in the place of a dead one."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import click

from lmqcluster.wire.errors import LmqError

from ...shared.confirm import confirm, destructive_options
from ...shared.connection.api import Api
from ...shared.connection.node_address import node_address
from ...shared.connection.target import Target, completes, target_options
from ...shared.errors import CliError, ExitCode, exit_code_of
from ...shared.output import plural, print_json
from ..queues.queue_list import all_queues
from .members import change_members, why_no_quorum

__all__ = ["replace"]

Member = Mapping[str, Any]
LOOK_TIMEOUT_S: Final = 3.0
READY_TIMEOUT_S: Final = 120.0
POLL_S: Final = 0.2
_HOW_TO_START: Final = 'start it with an empty data directory, await_join = "on" and no peers'


@dataclass(frozen=True, slots=True)
class _NewNode:
    """The node that takes the place.

    Attributes:
        api: its API.
        node_id: its member id.
        is_member: whether it is a member of the cluster already.
    """

    api: Api
    node_id: str
    is_member: bool


@click.command(short_help="Replace a dead node by a new one.")
@click.argument("member", metavar="NODE", shell_complete=completes(lambda api, _text: _names(_members(api))))
@click.argument("address", metavar="[ADDRESS]", required=False)
@destructive_options
@target_options
def replace(target: Target, member: str, address: str | None, yes: bool, dry_run: bool) -> None:
    """Remove the dead node NODE and let the new node at the HTTP address ADDRESS join in its place.

    NODE is a name or id, as status shows it; --node is any survivor. Start the new node with an empty data directory,
    await_join = "on" and no peers. Without ADDRESS the command checks whether NODE can be replaced, prints the next
    step and changes nothing.

    The command changes nothing if NODE is alive, if the survivors have no quorum or would have none without NODE, or
    if the new node does not answer or holds data. After an interruption, run the same command again: it continues with
    the step that is missing.

    \b
    Example:
      lmq-admin --node 10.0.0.1:9980 replace n3
      lmq-admin --node 10.0.0.1:9980 replace n3 10.0.0.4:9980
    """
    members = _members(target.api)
    new = None if address is None else _new_node(address, members)
    old = _find(member, [one for one in members if new is None or one["id"] != new.node_id])
    if old is None and (new is None or not new.is_member):
        _refuse_misspelled(member, members)
    if old is not None:
        _refuse_harmful(old, [one for one in members if one is not old])
    if new is None:
        _print_next_step(target, member, old)
        return
    steps = [] if old is None else [f"remove {member} (unreachable)"]
    steps += [] if new.is_member else [f"let {new.api.address} join"]
    if steps and not confirm(" and ".join(steps), yes=yes, dry_run=dry_run):
        return
    if old is not None:
        change_members(target.api, "remove", {"node": old["id"]})
    cluster = _let_join(target.api, new, member)
    count = f"the cluster has {plural(len(cluster['nodes']), 'node')}"
    done = f"{new.api.address} has taken the place of {member}" if steps else f"{new.api.address} is a member already"
    target.print_result(cluster, f"{done}; {count}.")


def _members(api: Api) -> list[Member]:
    """Return the members of a node's cluster, which must have a quorum.

    Raises:
        CliError: it has none.
    """
    cluster = api.get("/v1/cluster")
    if not cluster["has_quorum"]:
        text = (
            f"{api.address} {why_no_quorum(cluster)}. Nothing was changed. If the other nodes are lost for good, see"
            " lmq-admin recover"
        )
        raise CliError(text, ExitCode.UNAVAILABLE)
    nodes: list[Member] = cluster["nodes"]
    return nodes


def _new_node(address: str, members: Iterable[Member]) -> _NewNode:
    """Return the node at the address; it must be a member already, or fit to join.

    Raises:
        CliError, LmqError: it does not answer, or has data or another cluster.
    """
    try:
        api = Api(node_address(address))
    except ValueError as exc:
        raise click.BadParameter(str(exc), param_hint="ADDRESS") from exc
    cluster = api.get("/v1/cluster")
    node_id = cluster["self"]
    ids = {one["id"] for one in members}
    own = next((node for node in cluster["nodes"] if node["id"] == node_id), None)
    if node_id not in ids:
        _refuse_unfit(api, cluster["nodes"], own, ids)
    return _NewNode(api, node_id, node_id in ids)


def _refuse_unfit(api: Api, nodes: list[Member], own: Member | None, ids: set[str]) -> None:
    """Raise a `CliError` if a node outside of the cluster cannot join it.

    Args:
        nodes: the members of the new node's own cluster.
        own: the new node among them.
        ids: the members of the cluster that it is to join.
    """
    held = ""
    if own is None:
        # A join was interrupted: the node knows its new cluster, which does not have it yet.
        held = "" if ids & {node["id"] for node in nodes} else "belongs to another cluster"
    elif own["state"] == "removed":
        held = "holds the data of a node that was removed from its cluster"
    elif own["state"] != "left" and len(nodes) > 1:
        held = "belongs to another cluster"
    elif own["state"] != "left" and (count := sum(queue["size"] for queue in all_queues(api, fields="size"))):
        held = f"holds {plural(count, 'message')}"
    if held:
        raise CliError(f"{api.address} {held}. Nothing was changed. For a new node, {_HOW_TO_START}", ExitCode.BAD_DATA)


def _find(member: str, members: Iterable[Member]) -> Member | None:
    found = [one for one in members if member in (one["id"], one["name"])]
    if len(found) > 1:
        ids = ", ".join(one["id"] for one in found)
        raise CliError(f"several members are named {member}; give the id of one: {ids}", ExitCode.BAD_DATA)
    return found[0] if found else None


def _names(members: Iterable[Member]) -> list[str]:
    return [one["name"] or one["id"] for one in members]


def _refuse_misspelled(member: str, members: list[Member]) -> None:
    """Raise a `CliError` if a name that is no member's may be misspelled: there is another dead member."""
    dead = _names(one for one in members if one["state"] == "unreachable")
    if dead:
        text = (
            f"{member} is not a member, and {', '.join(dead)} cannot be reached. Nothing was changed. Name the dead node; if"
            f" {member} was removed before, let the new node join with lmq-admin join"
        )
        raise CliError(text, ExitCode.BAD_DATA)


def _refuse_harmful(old: Member, others: list[Member]) -> None:
    """Raise a `CliError` if the node is alive, or if the others would have no quorum without it."""
    name = old["name"] or old["id"]
    able = [one for one in others if one["state"] not in ("unreachable", "recovering")]
    if old["state"] != "unreachable" or _answers_as(old["http"], old["id"]):
        raise CliError(f"{name} is alive. Nothing was changed. For a live node, use lmq-admin leave", ExitCode.BAD_DATA)
    for one in able:
        view = _look(one["http"])
        if view is not None and any(node["id"] == old["id"] and node["connected"] for node in view["nodes"]):
            text = (
                f"{one['name'] or one['id']} still reaches {name}: the network is broken, not the node. Nothing was"
                " changed"
            )
            raise CliError(text, ExitCode.BAD_DATA)
    if 2 * len(able) <= len(others):
        text = (
            f"without {name} the remaining {plural(len(others), 'node')} would have no quorum: only {len(able)} can vote."
            " Nothing was changed. Start or reconnect the others first"
        )
        raise CliError(text, ExitCode.UNAVAILABLE)


def _look(address: str | None) -> Any:
    """Return the cluster as the node at an address sees it; None if it does not answer."""
    if not address:
        return None
    try:
        return Api(address, timeout_s=LOOK_TIMEOUT_S).get("/v1/cluster")
    except (CliError, LmqError):
        # The leader checks the members that matter once more.
        return None


def _answers_as(address: str | None, node_id: str) -> bool:
    found = _look(address)
    return found is not None and found["self"] == node_id


def _print_next_step(target: Target, member: str, old: Member | None) -> None:
    state = "removed" if old is None else "dead"
    command = f"lmq-admin --node {target.node} replace {member} HOST:PORT"
    if target.as_json:
        print_json({"node": member, "state": state, "next": command})
        return
    said = f"{member} is not a member (any more)" if old is None else f"{member} is dead and can be replaced"
    print(f"{said}. For the new node: {_HOW_TO_START}. Then: {command}")


def _let_join(survivor: Api, new: _NewNode, member: str) -> Any:
    """Make the new node join if it is not a member; return the cluster when the node is ready.

    Raises:
        CliError: it is not ready; the text has the state and the next step.
    """
    try:
        if not new.is_member:
            cluster = survivor.get("/v1/cluster")
            raft = next(node["raft"] for node in cluster["nodes"] if node["id"] == cluster["self"])
            change_members(new.api, "join", {"peer": raft, "discard_data": False})
        _until_ready(new.api)
        return survivor.get("/v1/cluster")
    except (CliError, LmqError) as exc:
        text, code = (exc.message, exit_code_of(exc)) if isinstance(exc, LmqError) else (str(exc), exc.exit_code)
        advice = (
            f"{member} is not a member any more, and {new.api.address} is not ready yet: run the same command again"
        )
        raise CliError(f"{text}. {advice}", code) from exc


def _until_ready(api: Api) -> None:
    deadline = time.monotonic() + READY_TIMEOUT_S
    while not api.ready():
        if time.monotonic() > deadline:
            raise CliError(f"{api.address} is a member and still copies data", ExitCode.UNKNOWN)
        time.sleep(POLL_S)
