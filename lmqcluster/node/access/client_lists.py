"""Lists of the clients of this node and of all nodes, and the end of a client's connections."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

import structlog

from ...ports import ConnectionLimiter
from ...replication.replica import Replica
from ...wire.errors import LmqError
from ..peer_poll import ask_member, ask_others
from ..process.fair_slices import FairSlices
from ..queues.service import QueueService
from .clients import NODE
from .consumer_counts import ConsumerCounts
from .consumers import PAGE_MAX, address_of, connections, held, waiting

__all__ = ["ClientLists", "ClientPage", "ClientQuery"]

log = structlog.get_logger("lmq.node")

KINDS: Final = ("connections", "consumers", "leases")
_VERB: Final = "clients"


@dataclass(frozen=True, slots=True)
class ClientQuery:
    """A requested part of a list.

    Attributes:
        kind: one of `KINDS`.
        offset, limit: the rows of each node.
        queue: only leases of messages of this queue; None for all.
    """

    kind: str
    offset: int
    limit: int
    queue: bytes | None = None

    def words(self) -> list[str]:
        """Return the query as arguments of a question to another member."""
        queue = [] if self.queue is None else [self.queue.decode("latin-1")]
        return ["list", self.kind, str(self.offset), str(self.limit), *queue]

    @classmethod
    def of(cls, words: list[str]) -> ClientQuery:
        """Return the query of a question, see `words`.

        Raises:
            ValueError: it is not one.
        """
        _list, kind, offset, limit, *queue = words
        if kind not in KINDS or not 1 <= int(limit) <= PAGE_MAX or int(offset) < 0:
            raise ValueError(f"{kind} from {offset}, {limit} rows, is no list of clients")
        return cls(kind, int(offset), int(limit), queue[0].encode("latin-1") if queue else None)


@dataclass(slots=True)
class ClientPage:
    """A part of a list.

    Attributes:
        rows: fields by name; names of queues and patterns are bytes.
        total: number of rows of the whole list.
        complete: False if the nodes do not know all leases.
        unreachable: names of the nodes whose rows are missing.
    """

    rows: list[dict[str, Any]] = field(default_factory=list)
    total: int = 0
    complete: bool = True
    unreachable: list[str] = field(default_factory=list)

    def add(self, node: str, answer: dict[str, Any] | None) -> None:
        """Add the rows of a node."""
        if not answer:
            self.unreachable.append(node)
            return
        self.rows += [{"node": node, **row} for row in answer["rows"]]
        self.total += answer["total"]
        self.complete &= answer["complete"]


class ClientLists:
    """The clients of this node, and those of the others on request.

    Args:
        replica: returns the current replica, which is replaced when the node joins or leaves a cluster.
        gates: the limiters of the client ports, which know the connections.
        service: its pulls.
        turns: grants slices of the event loop.

    Attributes:
        counts: the number of consumers of each queue.
    """

    def __init__(
        self,
        replica: Callable[[], Replica],
        gates: Sequence[ConnectionLimiter],
        service: QueueService,
        turns: FairSlices,
    ) -> None:
        self._replica = replica
        self._gates = gates
        self._service = service
        self._turns = turns
        self.counts = ConsumerCounts(replica, service, turns)
        self.close = self.counts.close

    async def own(self, query: ClientQuery, client: bytes) -> ClientPage:
        """Return a part of a list of this node; look it up in slices for this client."""
        offset, limit = query.offset, query.limit
        if query.kind == "connections":
            now_s = asyncio.get_running_loop().time()
            found, total = connections(self._gates, now_s, offset=offset, limit=limit)
            return ClientPage([asdict(row) for row in found], total)
        pulls = self._service.pulls
        if query.kind == "consumers":
            lines, total = waiting(pulls, offset=offset, limit=limit)
            rows = [
                {"pattern" if row.is_pattern else "queue": row.name, "pulls": row.pulls, "messages": row.messages}
                for row in lines
            ]
            return ClientPage(rows, total)
        holdings, is_complete = await pulls.holders.held(self._turns, client, query.queue)
        leases = held(holdings, pulls.clock.now_us(), offset=offset, limit=limit)
        return ClientPage([asdict(row) for row in leases], len(holdings), is_complete)

    async def of_all_nodes(self, query: ClientQuery, client: bytes) -> ClientPage:
        """Return the same part of the list of every node, in the order of their names."""
        replica = self._replica()
        own, others = await asyncio.gather(self.own(query, client), ask_others(replica, _VERB, query.words()))
        status = replica.status()
        answers = {**others, status.id: _fields(own)}
        page = ClientPage()
        for member in sorted(answers, key=status.name_of):
            page.add(status.name_of(member), answers[member])
        return page

    async def end_connections(self, node: str | None, address: str) -> int:
        """Close the connections of a client at a node, by default this one; return their number.

        Raises:
            LmqError: ``bad_request`` if no member has this name; ``unknown_outcome`` if it does not answer.
        """
        replica = self._replica()
        status = replica.status()
        if node is None or node in (status.id, status.name_of(status.id)):
            return self._end(address)
        found = [member for member in status.members if node in (member, status.name_of(member))]
        if not found:
            raise LmqError("bad_request", f"there is no node {node!r} in the cluster; GET /v1/cluster lists the nodes")
        answer = await ask_member(replica, status.members[found[0]], _VERB, ["end", address])
        if not answer:
            reason = f"{node} did not answer this node; the connections may be closed. Repeat the request"
            raise LmqError("unknown_outcome", reason, retryable=True)
        return int(answer["closed"])

    def _end(self, address: str) -> int:
        found = [place for gate in self._gates for place in gate.slots() if address_of(place) == address]
        for place in found:
            log.info("connection closed for an administrator", port=place.port, client=address, user=place.user)
            place.abort()
        return len(found)

    async def answer(self, words: list[str]) -> dict[str, Any]:
        """Answer the question of another member; empty if this node does not know it."""
        match words:
            case ["consumers"]:
                return await self.counts.own()
            case ["end", address]:
                return {"closed": self._end(address)}
            case ["list", _, _, _, *_]:
                try:
                    return _fields(await self.own(ClientQuery.of(words), NODE))
                except ValueError:
                    return {}
        return {}


def _fields(page: ClientPage) -> dict[str, Any]:
    return {"rows": page.rows, "total": page.total, "complete": page.complete}
