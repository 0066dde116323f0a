"""Changes of a cluster's members: joining, leaving, removal and leadership transfer."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import structlog
from aiohttp.abc import AbstractResolver, ResolveResult

from ...core import Machine
from ...net.loop import find
from ...replication.base.status import ReplicaStatus
from ...replication.leader_transfer import transfer_leadership
from ...replication.peers.dialer import UnansweredError
from ...replication.replica import Replica
from ...wire.address import Address
from ...wire.errors import LmqError, Outcome
from ..access.access import Access
from ..queues.service import QueueService
from .identity import fresh_id
from .standing import outside

__all__ = ["Membership"]

log = structlog.get_logger("lmq.membership")

HTTP_PORT = 9980
ASK_TIMEOUT_S = 12.0
CHANGE_DEADLINE_S = 20.0
LEARN_DEADLINE_S = 600.0
LOOKUP_S = 12.0
"""Maximum duration of the name lookup of a peer to join."""
CAUGHT_UP_DEADLINE_S = 120.0
DRAIN_S = 10.0
"""How long a leaving node waits for the outcome of accepted commands."""
_RETRY_S = 0.2
_LEAVES = "this node is leaving its cluster; use another node"


class Membership:
    """Membership changes that start at this node.

    Args:
        replica: returns the current replica, which is replaced when the node joins or leaves a cluster.
        service: refuses clients while the node is in no cluster.
        access: does the same.
        may_listen: returns whether the Raft port may be open.
        health: returns the readiness checks.
        become: discards the current membership and data, and begins as a node id with these members.

    Attributes:
        changing: lock held while the node's membership changes.
        on_leave: callbacks that end the connections of clients when the node no longer belongs to their cluster.
    """

    def __init__(
        self,
        replica: Callable[[], Replica],
        service: QueueService,
        access: Access,
        *,
        may_listen: Callable[[], bool],
        health: Callable[[], list[tuple[str, bool, str]]],
        become: Callable[[str, dict[str, str]], Awaitable[None]],
    ) -> None:
        self.on_leave: list[Callable[[], None]] = []
        self._replica = replica
        self._service = service
        self._access = access
        self._may_listen = may_listen
        self._health = health
        self._become = become
        self.changing = asyncio.Lock()

    def refuse_clients_if_outside(self) -> None:
        """Refuse clients while the node belongs to no cluster, because it left or was removed.

        If it served them alone, it would acknowledge messages that the cluster never sees.
        """
        reason, refused = outside(self._replica().status()), self._access.outside
        if reason == (None if refused is None else refused.message):
            return
        error = None if reason is None else LmqError("left_cluster", reason)
        self._service.refuse(error)
        self._access.exclude(error)
        if error is not None:
            log.warning("clients are refused", reason=reason)
            self.end_connections()

    def end_connections(self) -> None:
        """Close the connections of clients."""
        for end in self.on_leave:
            end()

    async def join(self, peer: str, *, discard_data: bool) -> None:
        """Add this node to the cluster of `peer` (HTTP or Raft address, or ``lmq@host``).

        The node copies the cluster's data first; after that it counts for the quorum.

        Args:
            discard_data: whether messages that this node holds may be discarded.

        Raises:
            LmqError: ``conflict`` if the node is already in a cluster or holds messages, ``unreachable``, ``bad_request``,
                ``unknown_outcome``.
        """
        async with self.changing:
            await self._join(peer, discard_data=discard_data)

    async def leave(self) -> None:
        """Remove this node from its cluster. Empty and in no cluster, it refuses clients until it joins one.

        Accepted commands reach their outcome first. If the node has already left, this is a no-op.

        Raises:
            LmqError: ``conflict`` if the node is alone, ``no_leader`` if the others have no quorum, ``unknown_outcome``.
        """
        async with self.changing:
            await self._leave()

    async def remove(self, member: str, *, force: bool) -> None:
        """Remove another member, given by id or name, from the cluster, usually because it is dead.

        Args:
            force: remove the member even if it is alive.

        Raises:
            LmqError: ``bad_request`` if there is no such member, ``conflict`` if the others would have no quorum or the member
                is alive, ``no_leader``, ``unknown_outcome``.
        """
        async with self.changing:
            await self._remove(member_id(self._replica().status(), member), force=force)

    async def transfer_leadership(self, member: str | None) -> None:
        """Transfer leadership to a member, given by id or name, or to the one that is most up to date.

        Raises:
            LmqError: ``bad_request`` if there is no such member, ``conflict`` if the member did not take over, ``no_leader``.
        """
        target = [] if member is None else [member_id(self._replica().status(), member)]
        await self._change(None, "transfer", target)

    async def _join(self, peer: str, *, discard_data: bool) -> None:
        replica = self._replica()
        status = replica.status()
        if len(status.members) > 1 and status.id in status.members and not status.was_removed:
            raise LmqError("conflict", "this node is in a cluster already; let it leave first", retryable=False)
        if not self._may_listen():
            text = "this node asks for tokens and has no cluster secret, so its Raft port is closed: set LMQ_CLUSTER_SECRET_FILE"
            raise LmqError("conflict", text, retryable=False)
        contact = await _contact(status, peer)
        cluster = await _ask(replica, contact, "cluster", [])
        if not cluster["members"]:
            raise LmqError(
                "conflict", f"the node at {peer} has left its cluster: name one that is in it", retryable=False
            )
        # The status may have changed during the requests.
        status = replica.status()
        if cluster["id"] == status.id:
            raise LmqError("bad_request", f"{peer} is this node itself")
        new_id = status.id
        if not _may_resume(status, cluster["members"]):
            if not discard_data:
                _require_no_messages(status, replica.machine)
            new_id = fresh_id()
        log.info("joining", peer=peer, members=sorted(cluster["members"]), id=new_id)
        if cluster.get("guarded"):
            self._access.distrust()
        if new_id != status.id:
            await self._become(new_id, dict(cluster["members"]))
        try:
            await self._change(contact, "add", [new_id, status.address])
        except LmqError as exc:
            if exc.outcome == "not_applied":
                # A node that was in a cluster must not become a cluster of one: clients may know its address.
                is_outside = outside(status) is not None or not status.members
                await self._become(new_id, {} if is_outside else {new_id: status.address})
            raise
        await _until(
            lambda: new_id in self._replica().status().members and all(ok for _, ok, _ in self._health()),
            CAUGHT_UP_DEADLINE_S,
            "the node was added but has not caught up with the cluster yet",
        )

    async def _leave(self) -> None:
        status = self._replica().status()
        if status.has_left:
            return
        if not status.was_removed:
            if status.members.keys() <= {status.id}:
                text = "this node is alone, so there is no cluster to leave: its messages are nowhere else; stop it instead"
                raise LmqError("conflict", text, retryable=False)
            log.info("leaving", members=sorted(status.members))
            self._service.refuse(LmqError("left_cluster", _LEAVES))
            try:
                await self._service.sender.proposer.drained(DRAIN_S)
                await self._take_out(status)
            except BaseException:
                self._service.refuse(None)
                raise
        await self._become(fresh_id(), {})

    async def _take_out(self, status: ReplicaStatus) -> None:
        """Make the other members remove this node."""
        if not await transfer_leadership(self._replica()):
            raise LmqError("no_leader", "no other member is up to date and can take the lead; nothing was changed")
        others = [address for node_id, address in sorted(status.members.items()) if node_id != status.id]
        last: LmqError | None = None
        for address in others:
            try:
                await self._change(address, "rem", [status.id, ""])
            except LmqError as exc:
                if exc.outcome != "not_applied":
                    raise
                last = exc.again()
            else:
                return
        if last is not None:
            raise last.again()
        raise LmqError("no_leader", "no other member can be reached; nothing was changed")

    async def _remove(self, node_id: str, *, force: bool) -> None:
        status = self._replica().status()
        if node_id == status.id:
            raise LmqError("bad_request", "a node is not removed through itself; let it leave")
        if node_id in status.connected and not force:
            text = f"member {node_id} is alive; let it leave by itself, or force its removal"
            raise LmqError("conflict", text, retryable=False)
        if status.leader == node_id:
            # Only another member can remove the leader.
            await self._change(None, "transfer", [])
        await self._change(None, "rem", [node_id, ""])

    async def _change(self, contact: str | None, verb: str, arguments: list[str]) -> None:
        """Send a request to the leader and retry, following changes of the leader. Requests are idempotent.

        Args:
            contact: Raft address of a member of the cluster; None if this node is a member itself.

        Raises:
            LmqError: the request was refused, or there is no leader.
        """
        loop = asyncio.get_running_loop()
        last_resort = loop.time() + LEARN_DEADLINE_S
        deadline = loop.time() + CHANGE_DEADLINE_S
        address, doubt = contact, ""
        while True:
            try:
                answer = await _ask(self._replica(), address, verb, arguments)
                if answer["done"]:
                    return
                _raise_if_refused(answer)
                if answer.get("learning"):
                    # A new node copies the data first, which has no fixed duration.
                    deadline = loop.time() + CHANGE_DEADLINE_S
                doubt = answer.get("in_doubt") or doubt
                address = answer["leader_address"] or contact
                problem = LmqError("no_leader", "the cluster has no leader; nothing was changed")
            except LmqError as exc:
                if exc.outcome is Outcome.UNKNOWN:
                    doubt = exc.message
                elif not exc.retryable or (not doubt and address == contact and exc.code == "unreachable"):
                    raise
                problem, address = exc.again(), contact
            if loop.time() > min(deadline, last_resort):
                if doubt:
                    raise _in_doubt(doubt)
                raise problem.again()
            await asyncio.sleep(_RETRY_S)


def _in_doubt(reason: str) -> LmqError:
    text = f"the change may or may not happen: {reason}; lmq-admin status shows the members, and the request may be repeated"
    return LmqError("unknown_outcome", text)


def member_id(status: ReplicaStatus, member: str) -> str:
    """Return the id of the member with this id or name.

    Raises:
        LmqError: ``bad_request`` if there is no such member or several.
    """
    if member in status.members:
        return member
    found = [one for one in status.members if one in status.about and status.about[one].name == member]
    if len(found) != 1:
        names = {one: about.name for one, about in status.about.items()}
        known = ", ".join(sorted(f"{names[one]} ({one})" if one in names else one for one in status.members))
        raise LmqError("bad_request", f"there is no one member {member!r}; the members are {known}")
    return found[0]


def _require_no_messages(status: ReplicaStatus, machine: Machine) -> None:
    """Refuse to discard data that a node holds.

    Raises:
        LmqError: ``conflict`` if it holds data.
    """
    if status.was_removed:
        # The node does not know which entries of its log were committed.
        held = "what it had when it was removed from its cluster"
    elif count := sum(map(len, machine.state.queues.values())):
        held = f"{count} messages"
    else:
        return
    text = f"this node holds {held}, which joining would throw away; say that it may be discarded"
    raise LmqError("conflict", text, retryable=False)


def _may_resume(status: ReplicaStatus, members: Mapping[str, str]) -> bool:
    """Return whether a node was interrupted while it joined the cluster with these members.

    It may already be a member, so joining under another id would count it twice.
    """
    known = status.members
    return status.id not in known and (status.id in members or not known.keys().isdisjoint(members))


async def _contact(own: ReplicaStatus, peer: str) -> str:
    """Return the Raft address of the node that the operator named."""
    text = peer.partition("@")[2] if "@" in peer else peer
    if "//" in text:
        text = urlsplit(text).netloc
    try:
        address = Address.parse(text if ":" in text else f"{text}:{HTTP_PORT}")
    except ValueError as exc:
        raise LmqError("bad_request", f"{peer!r} is not the address of a node: {exc}") from exc
    try:
        await find(address.host, LOOKUP_S)
    except OSError as exc:
        raise LmqError("unreachable", f"{peer}: {exc}; nothing was changed") from exc
    status = await _http_status(address)
    if status is None:
        return str(address)
    rafts = [entry["raft"] for entry in status["nodes"] if entry["id"] == status["self"]]
    if not rafts or (status["self"] == own.id and rafts[0] == own.address):
        raise LmqError("bad_request", f"{peer} is this node itself")
    return str(rafts[0])


class _Resolver(AbstractResolver):
    """Resolves names for aiohttp with the lookup of the rest of the program."""

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        found = await find(host, LOOKUP_S)
        return [
            ResolveResult(hostname=host, host=one.host, port=port, family=one.family, proto=0, flags=0)
            for one in found
            if family in (socket.AF_UNSPEC, one.family)
        ]

    async def close(self) -> None:
        pass


async def _http_status(address: Address) -> dict[str, Any] | None:
    """Return ``/v1/cluster`` of the node at an HTTP address, or None if the node does not speak HTTP.

    Raises:
        LmqError: ``conflict`` if it requires a token, which this node does not have.
    """
    try:
        async with (
            aiohttp.ClientSession(
                timeout=aiohttp.ClientTimeout(total=3.0), connector=aiohttp.TCPConnector(resolver=_Resolver())
            ) as session,
            session.get(f"http://{address}/v1/cluster") as response,
        ):
            if response.status == HTTPStatus.UNAUTHORIZED:
                text = f"{address} wants a token: join by its Raft address, or through lmq-admin with a token that is good there"
                raise LmqError("conflict", text, retryable=False)
            body = await response.json()
    except (aiohttp.ClientError, OSError, TimeoutError, json.JSONDecodeError):
        return None
    return body if isinstance(body, dict) and "nodes" in body else None


async def _ask(replica: Replica, address: str | None, verb: str, arguments: list[str]) -> dict[str, Any]:
    """Send a request to the member at `address`, or to this node itself."""
    transport = replica.transport
    if address is None or address == transport.me.address:
        answer = await replica.peer_requests.answer(verb, arguments)
        if not answer["ok"]:
            raise LmqError("conflict", f"it was refused: {answer['result']}")
        own: dict[str, Any] = answer["result"]
        return own
    try:
        return await transport.ask(address, verb, arguments, timeout_s=ASK_TIMEOUT_S)
    except UnansweredError as exc:
        code = "unreachable" if verb == "cluster" else "unknown_outcome"
        raise LmqError(code, f"the node at {address} was asked: {exc}") from exc
    except (OSError, TimeoutError) as exc:
        raise LmqError("unreachable", f"the node at {address} cannot be reached: {str(exc) or 'timed out'}") from exc
    except LookupError as exc:
        raise LmqError("conflict", f"the node at {address} refused: {exc}") from exc


def _raise_if_refused(answer: Mapping[str, Any]) -> None:
    """Raise an error for a final refusal, which retries would not change."""
    if "refused" in answer:
        raise LmqError("conflict", answer["refused"], retryable=False)


async def _until(condition: Callable[[], bool], deadline_s: float, otherwise: str) -> None:
    """Poll a condition of the replica until it holds.

    Raises:
        LmqError: ``unknown_outcome`` with the text `otherwise` after `deadline_s` seconds.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + deadline_s
    while not condition():
        if loop.time() > deadline:
            raise LmqError("unknown_outcome", f"{otherwise} (waited {deadline_s:g} s)")
        await asyncio.sleep(0.02)
