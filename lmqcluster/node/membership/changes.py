"""Joining, leaving and removing: how the members of a cluster change."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import aiohttp
import structlog

from ...replication.leader_transfer import transfer_leadership
from ...wire.address import Address
from ...wire.errors import LmqError
from ..access import raft_port
from .identity import fresh_id

if TYPE_CHECKING:
    from ..node import Node

__all__ = ["ask_leader", "exclude", "join", "leave", "outside", "remove"]

log = structlog.get_logger("lmq.membership")

HTTP_PORT = 9980
ASK_TIMEOUT_S = 12.0
CHANGE_DEADLINE_S = 20.0
LEARN_DEADLINE_S = 600.0
CAUGHT_UP_DEADLINE_S = 120.0
DRAIN_S = 10.0
"""How long a node that leaves waits for the outcome of what it has taken."""
_RETRY_S = 0.2
_LEAVES = "this node is leaving its cluster; use another node"
_LEFT = (
    "this node has left its cluster, or has not joined one yet, and serves nothing; use another node, or let this one join"
    " (lmq-admin join PEER)"
)
_REMOVED = (
    "this node was removed from its cluster and serves nothing; use another node, or let this one join again"
    " (lmq-admin join PEER --discard-data)"
)


def outside(node: Node) -> str | None:
    """Why `node` belongs to no cluster; None if it does."""
    if node.has_left:
        return _LEFT
    return _REMOVED if node.replica.core.was_removed() else None


def exclude(node: Node, reason: str | None) -> None:
    """Refuse clients of a node that belongs to no cluster, or serve them again.

    A node that went on alone would acknowledge what nobody else ever sees.
    """
    error = None if reason is None else LmqError("left_cluster", reason)
    _refuse_clients(node, error)
    node.access.exclude(error)
    if error is not None:
        log.warning("clients are refused", reason=reason)
        node.end_connections()


def _refuse_clients(node: Node, error: LmqError | None) -> None:
    """Take no more requests but see those that were taken to their outcome; None takes requests again."""
    if error is None:
        node.service.proposer.resume()
        node.service.pulls.reopen()
    else:
        node.service.proposer.retire(error)
        node.service.pulls.close(error)


async def join(node: Node, peer: str, *, discard_data: bool) -> None:
    """Bring `node` into the cluster of `peer`; see `Node.join`."""
    core = node.replica.core
    if len(core.members()) > 1 and node.id in core.members() and not core.was_removed():
        raise LmqError("conflict", "this node is in a cluster already; let it leave first", retryable=False)
    if not raft_port.may_be_open(node):
        text = "this node asks for tokens and has no cluster secret, so its Raft port is closed: set LMQ_CLUSTER_SECRET_FILE"
        raise LmqError("conflict", text, retryable=False)
    contact = await _contact(node, peer)
    cluster = await _ask(node, contact, "cluster", [])
    if not cluster["members"]:
        raise LmqError("conflict", f"the node at {peer} has left its cluster: name one that is in it", retryable=False)
    if cluster["id"] == node.id:
        raise LmqError("bad_request", f"{peer} is this node itself")
    new_id = node.id
    if not _may_resume(node, cluster["members"]):
        if not discard_data:
            _refuse_to_lose(node)
        new_id = fresh_id()
    address = node.replica.transport.me.address
    was_outside = outside(node) is not None
    log.info("joining", peer=peer, members=sorted(cluster["members"]), id=new_id)
    if cluster.get("guarded"):
        node.access.distrust()
    if new_id != node.id:
        await node.become(new_id, dict(cluster["members"]))
    try:
        await _change(node, contact, "add", [new_id, address])
    except LmqError as exc:
        if exc.outcome == "not_applied":
            # A node that was in a cluster must not become one of its own: clients may know its address.
            await node.become(new_id, {} if was_outside else {new_id: address})
        raise
    await _until(
        lambda: new_id in node.replica.core.members() and all(ok for _, ok, _ in node.health()),
        CAUGHT_UP_DEADLINE_S,
        "the node was added but has not caught up with the cluster yet",
    )


def _refuse_to_lose(node: Node) -> None:
    """Refuse to throw away what `node` holds.

    Raises:
        LmqError: ``conflict``: it holds something.
    """
    if node.replica.core.was_removed():
        # It cannot tell which entries of its log were committed.
        held = "what it had when it was removed from its cluster"
    elif count := sum(map(len, node.replica.machine.queues.values())):
        held = f"{count} messages of its own"
    else:
        return
    text = f"this node holds {held}, which joining would throw away; say that it may be discarded"
    raise LmqError("conflict", text, retryable=False)


def _may_resume(node: Node, members: Mapping[str, str]) -> bool:
    """Whether `node` was interrupted while it joined the cluster with these members.

    It may have become a member meanwhile, so under another id it would be two of them.
    """
    known = node.replica.core.members()
    return node.id not in known and (node.id in members or not known.keys().isdisjoint(members))


async def leave(node: Node) -> None:
    """Take `node` out of its cluster; see `Node.leave`."""
    if node.has_left:
        return
    if not node.replica.core.was_removed():
        members = node.replica.core.members()
        if members.keys() <= {node.id}:
            text = "this node is alone, so there is no cluster to leave: its messages are nowhere else; stop it instead"
            raise LmqError("conflict", text, retryable=False)
        log.info("leaving", members=sorted(members))
        _refuse_clients(node, LmqError("left_cluster", _LEAVES))
        try:
            await node.service.proposer.drained(DRAIN_S)
            await _take_out(node, members)
        except BaseException:
            _refuse_clients(node, None)
            raise
    await node.become(fresh_id(), {})


async def _take_out(node: Node, members: Mapping[str, str]) -> None:
    """Have the others go on without `node`."""
    if not await transfer_leadership(node.replica):
        raise LmqError("no_leader", "no other member is up to date and can take the lead; nothing was changed")
    others = [address for node_id, address in sorted(members.items()) if node_id != node.id]
    last: LmqError | None = None
    for address in others:
        try:
            await _change(node, address, "rem", [node.id, ""])
        except LmqError as exc:
            if exc.outcome != "not_applied":
                raise
            last = exc
        else:
            return
    raise last or LmqError("no_leader", "no other member can be reached; nothing was changed")


async def remove(node: Node, node_id: str, *, force: bool) -> None:
    """Take another member out of the cluster; see `Node.remove`."""
    members = node.replica.core.members()
    if node_id not in members:
        raise LmqError("bad_request", f"there is no member {node_id}")
    if node_id == node.id:
        raise LmqError("bad_request", "a node is not removed through itself; let it leave")
    if node_id in node.replica.transport.connected_ids() and not force:
        text = f"member {node_id} is alive; let it leave by itself, or force its removal"
        raise LmqError("conflict", text, retryable=False)
    if node.replica.core.leader_id() == node_id:
        # Only somebody else can remove the leader.
        await ask_leader(node, "transfer", [])
    await ask_leader(node, "rem", [node_id, ""])


async def ask_leader(node: Node, verb: str, arguments: list[str]) -> None:
    """Have the leader, be it this node or another one, do something; tried again until it says that it is done.

    Raises:
        LmqError: it cannot be done, or there is no leader.
    """
    await _change(node, None, verb, arguments)


async def _contact(node: Node, peer: str) -> str:
    """The Raft address behind what the operator wrote."""
    text = peer.partition("@")[2] if "@" in peer else peer
    if "//" in text:
        text = urlsplit(text).netloc
    try:
        address = Address.parse(text if ":" in text else f"{text}:{HTTP_PORT}")
    except ValueError as exc:
        raise LmqError("bad_request", f"{peer!r} is not the address of a node: {exc}") from exc
    status = await _http_status(address)
    if status is None:
        return str(address)
    me = node.replica.transport.me.address
    rafts = [entry["raft"] for entry in status["nodes"] if entry["id"] == status["self"]]
    if not rafts or (status["self"] == node.id and rafts[0] == me):
        raise LmqError("bad_request", f"{peer} is this node itself")
    return str(rafts[0])


async def _http_status(address: Address) -> dict[str, Any] | None:
    """``/v1/cluster`` of the node at an HTTP address, or None if it does not speak HTTP.

    Raises:
        LmqError: ``conflict`` if it wants a token, which this node does not have.
    """
    try:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=3.0)) as session,
            session.get(f"http://{address}/v1/cluster") as response,
        ):
            if response.status == HTTPStatus.UNAUTHORIZED:
                text = f"{address} wants a token: join by its Raft address, or through lmq-admin with a token that is good there"
                raise LmqError("conflict", text, retryable=False)
            body = await response.json()
    except (aiohttp.ClientError, OSError, TimeoutError, json.JSONDecodeError):
        return None
    return body if isinstance(body, dict) and "nodes" in body else None


async def _ask(node: Node, address: str | None, verb: str, arguments: list[str]) -> dict[str, Any]:
    """Put a question to the member at `address`, or to this node itself."""
    transport = node.replica.transport
    if address is None or address == transport.me.address:
        answer = await node.replica.peer_requests.answer(verb, arguments)
        if not answer["ok"]:
            raise LmqError("conflict", f"it was refused: {answer['result']}")
        own: dict[str, Any] = answer["result"]
        return own
    try:
        return await transport.ask(address, verb, arguments, timeout_s=ASK_TIMEOUT_S)
    except (OSError, TimeoutError) as exc:
        raise LmqError("unreachable", f"the node at {address} cannot be reached: {str(exc) or 'timed out'}") from exc
    except LookupError as exc:
        raise LmqError("conflict", f"the node at {address} refused: {exc}") from exc


async def _change(node: Node, contact: str | None, verb: str, arguments: list[str]) -> None:
    """Have the leader do something, following it wherever it is; to do it twice is harmless.

    Args:
        contact: Raft address of a member of the cluster; None if `node` is a member itself.
    """
    loop = asyncio.get_running_loop()
    last_resort = loop.time() + LEARN_DEADLINE_S
    deadline = loop.time() + CHANGE_DEADLINE_S
    address = contact
    while True:
        try:
            answer = await _ask(node, address, verb, arguments)
            if answer["done"]:
                return
            _raise_if_refused(answer)
            if answer.get("learning"):
                # A new node gets the data first; that takes as long as it takes.
                deadline = loop.time() + CHANGE_DEADLINE_S
            address = answer["leader_address"] or contact
            problem = LmqError("no_leader", "the cluster has no leader; nothing was changed")
        except LmqError as exc:
            if not exc.retryable or (address == contact and exc.code == "unreachable"):
                raise
            problem, address = exc, contact
        if loop.time() > min(deadline, last_resort):
            raise problem
        await asyncio.sleep(_RETRY_S)


def _raise_if_refused(answer: Mapping[str, Any]) -> None:
    """Some answers do not change however often the question is put."""
    if "refused" in answer:
        raise LmqError("conflict", answer["refused"], retryable=False)


async def _until(condition: Callable[[], bool], deadline_s: float, otherwise: str) -> None:
    """Wait for a condition of the replica, which changes in its steps.

    Raises:
        LmqError: ``unknown_outcome`` with the text `otherwise`.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + deadline_s
    while not condition():
        if loop.time() > deadline:
            raise LmqError("unknown_outcome", f"{otherwise} (waited {deadline_s:g} s)")
        await asyncio.sleep(0.02)
