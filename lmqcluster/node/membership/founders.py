"""Discovery of the founding members: the nodes that answer at the addresses in `peers`, however these are spelled.

The id of a founding member is the address that it advertises. Other members may list it under a different address, for example
a host name in place of an IP address. So a fresh node asks for the id at each address before it takes part in anything. The
nodes that answer are the members, once all of them have found the same ones. The list is then durable (`NodeMeta.found`) and
never changes. The first leader is elected only when all members have the list (`Replica`). Therefore a node founds at most one
cluster, and clusters founded separately share no node. A member that has lost its data directory finds the cluster to which it
belongs and copies it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import structlog

from ...replication.peers.messages import FrameError
from ...replication.replica import Replica
from ...wire.address import Address

__all__ = ["Answer", "Decision", "Founders", "Founding", "decide", "identify"]

log = structlog.get_logger("lmq.membership")

PERIOD_MIN_S: Final = 0.1
PERIOD_MAX_S: Final = 1.0
ASK_TIMEOUT_S: Final = 3.0
MEMBERS_MAX: Final = 1000
CHARACTERS_MAX: Final = 300

Founders = Mapping[str, str]
"""Id to Raft address of the founding members."""


class Answer(NamedTuple):
    """The answer of a node to an identity request.

    Attributes:
        id: the member id.
        origin: a name that is unique to the data directory.
        address: the address where peers connect.
        members: Raft addresses of the members by id.
        founding: whether the node has not seen a leader of its cluster yet.
        founders: the ids of the founding members that the node has found; None until all have answered.
    """

    id: str
    origin: str
    address: str
    members: Mapping[str, str]
    founding: bool
    founders: frozenset[str] | None


@dataclass(frozen=True, slots=True)
class Decision:
    """The next step of a node that founds a cluster.

    Attributes:
        obstacle: a message for people about what the node waits for or what is wrong.
        founders: the founding members.
        cluster: the members of the cluster to copy, which already includes this node.
    """

    obstacle: str | None = None
    founders: Founders | None = None
    cluster: Founders | None = None


def identify(me: Answer, answers: Mapping[str, Answer | str], *, is_listed: bool) -> Founders | str:
    """Return the founding members, or a message for people about what is wrong or missing.

    Two addresses of the list that lead to the same node are an error, except for one that leads to this node. A name that leads
    to the wrong node for a moment must not make the cluster smaller.

    Args:
        me: this node.
        answers: the answer or the failure of each address in the list, without the address that this node advertises.
        is_listed: whether the list contains that address.
    """
    founders = {me.id: me.address}
    addresses = {me.id: me.address}
    silent, aliases = [], []
    for address, there in answers.items():
        if isinstance(there, str):
            silent.append(f"{address} ({there})")
        elif not (there.founding or there.members):
            silent.append(f"{address} (it has left its cluster, is to join one, or was repaired)")
        elif there.id == me.id and there.origin != me.origin:
            return f"another node, at {address}, advertises {me.id} too: give each node its own advertise_raft"
        elif there.id == me.id:
            aliases.append(address)
        elif there.id in founders:
            return (
                f"peers has one node, {there.id}, twice: as {addresses[there.id]} and as {address};"
                " name it once, or correct the name that leads to the wrong node"
            )
        else:
            founders[there.id], addresses[there.id] = there.address, address
    if len(aliases) > 1 or (aliases and is_listed):
        return f"peers has this node, {me.id}, more than once: also as {', '.join(aliases)}; name it once"
    if silent:
        return f"the founding members wait for {', '.join(silent)}: start these nodes, or correct peers"
    if len(founders) == 1:
        return f"peers has no other node: at {', '.join(aliases)} answers this one, {me.id}; correct peers"
    # The order is the same everywhere, so that the snapshots of all nodes are equal.
    return dict(sorted(founders.items()))


def decide(me: Answer, answers: Mapping[str, Answer | str], founders: Founders | str) -> Decision:
    """Decide the next step of a node that founds a cluster.

    Args:
        me, answers: see `identify`.
        founders: the result of `identify`.
    """
    others = {address: one for address, one in answers.items() if isinstance(one, Answer) and one.id != me.id}
    foreign = {address: one for address, one in others.items() if one.members and not one.founding}
    for one in foreign.values():
        if me.id in one.members:
            return Decision(cluster=one.members)
    for address, one in foreign.items():
        return Decision(_foreign(me, address, one))
    if isinstance(founders, str):
        return Decision(founders)
    for address, one in others.items():
        if one.founders is not None and one.founders != founders.keys():
            theirs, mine = ", ".join(sorted(one.founders)), ", ".join(sorted(founders))
            return Decision(
                f"the node at {address}, {one.id}, was given other peers: it has found {theirs}, this node {mine};"
                " give all founding members the same peers, and restart those that had others"
            )
    if any(one.founders is None for one in others.values()):
        waiting = ", ".join(one.id for one in others.values() if one.founders is None)
        return Decision(f"the founding members wait for {waiting} to find all others")
    return Decision(founders=founders)


def _foreign(me: Answer, address: str, there: Answer) -> str:
    """Return a message about a node that belongs to another cluster, with the remedy."""
    known = ", ".join(sorted(there.members))
    return (
        f"the node at {address}, {there.id}, belongs to a cluster without this node, {me.id}: its members are {known}."
        " If this node is to be one of them, because it was removed, its folder was emptied or that node was restored,"
        f" let it join (lmq-admin join {address}); otherwise correct peers"
    )


class Founding:
    """Searches for the founding members until the cluster can be founded, or the node belongs to one.

    Args:
        replica: returns the current replica.
        peers: the addresses of the list, without the address that this node advertises.
        is_listed: whether the list contains that address.
        copy: rejoins the cluster with these members and copies all of its data.
        changing: lock held while the node's membership changes.
    """

    def __init__(
        self,
        replica: Callable[[], Replica],
        peers: Iterable[Address],
        copy: Callable[[Founders], Awaitable[None]],
        changing: asyncio.Lock,
        *,
        is_listed: bool,
    ) -> None:
        self._replica = replica
        self._peers = [str(peer) for peer in peers]
        self._copy = copy
        self._changing = changing
        self._is_listed = is_listed
        self._found: Founders | None = None
        self._is_copying = False
        self._task = asyncio.get_running_loop().create_task(self._run())
        self._task.add_done_callback(self._ended)

    def ids(self) -> frozenset[str] | None:
        """Return the ids of the founding members; None until all have answered."""
        return None if self._found is None else frozenset(self._found)

    async def close(self) -> None:
        """Stop the search; wait for a copy that is under way."""
        if not self._is_copying:
            self._task.cancel()
        await asyncio.wait((self._task,))

    def _ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Exception):
            self._replica().failed(error)

    async def _run(self) -> None:
        pause_s = PERIOD_MIN_S
        while self._replica().meta.awaits_founders:
            await self._look(self._replica())
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, PERIOD_MAX_S)

    async def _look(self, replica: Replica) -> None:
        meta = replica.meta
        told = await asyncio.gather(*(_ask(replica, address) for address in self._peers))
        async with self._changing:
            if replica is not self._replica() or not meta.awaits_founders:
                return
            me = Answer(meta.node_id, meta.origin, replica.transport.me.address, {}, founding=True, founders=None)
            answers = dict(zip(self._peers, told, strict=True))
            founders = identify(me, answers, is_listed=self._is_listed)
            self._found = None if isinstance(founders, str) else founders
            await self._act(replica, decide(me, answers, founders))

    async def _act(self, replica: Replica, decision: Decision) -> None:
        replica.obstacle = decision.obstacle or ""
        if decision.cluster is not None:
            log.warning("this node is a member of a cluster, copying everything", members=sorted(decision.cluster))
            self._is_copying = True
            await self._copy(decision.cluster)
            self._is_copying = False
        elif decision.founders is not None:
            log.info("founding members found", members=sorted(decision.founders), peers=self._peers)
            replica.found(decision.founders)


async def _ask(replica: Replica, address: str) -> Answer | str:
    """Ask the node at an address for its identity; return its answer, or the failure as text."""
    try:
        return _answer(await replica.transport.ask(address, "cluster", [], timeout_s=ASK_TIMEOUT_S))
    except TimeoutError:
        return "no answer"
    except (LookupError, FrameError, TypeError, ValueError, AttributeError):
        return "its answer cannot be read; does it run another version?"
    except OSError as exc:
        return exc.strerror or str(exc)


def _answer(told: dict[str, Any]) -> Answer:
    """Parse an answer.

    Raises:
        LookupError, TypeError, ValueError, AttributeError: the answer is malformed.
    """
    members: dict[str, str] = dict(told["members"].items())
    founders = told["founders"]
    texts = [told["id"], told["origin"], told["address"], *members, *members.values(), *(founders or ())]
    if len(texts) > MEMBERS_MAX or not all(type(text) is str and len(text) <= CHARACTERS_MAX for text in texts):
        raise ValueError("too long")
    known = None if founders is None else frozenset(founders)
    return Answer(told["id"], told["origin"], told["address"], members, bool(told["founding"]), known)
