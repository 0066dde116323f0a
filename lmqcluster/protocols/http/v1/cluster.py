"""``/v1/cluster`` and the health routes: what operators and their tools ask a node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ....core import Role
from ....wire.errors import LmqError
from ....wire.limits import HTTP_PROPERTY_BYTES_MAX
from ..server.replies import problem
from ..server.replies.common_replies import RETRY_AFTER
from ..server.replies.reply import Reply
from ..server.routing import Resource, Router
from .bodies.media import read_value, reply_media

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ....node.node import Node
    from ..server.requests.request import Request
    from ..server.routing import Handler

__all__ = ["ClusterRoutes"]

_TEXT = b"content-type: text/plain; charset=utf-8\r\ncache-control: no-store\r\n"
_BLOCK = b"content-type: application/octet-stream\r\ncache-control: no-store\r\n"
_TEXT_CHARACTERS_MAX = 300


class ClusterRoutes:
    """Shows the cluster and the health of this node; lets it join and leave."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def add_to(self, router: Router) -> None:
        """Register the routes."""
        table: Mapping[str, Mapping[str, Handler]] = {
            "/v1/cluster": {"GET": self.status},
            "/v1/cluster/join": {"POST": self.join},
            "/v1/cluster/leave": {"POST": self.leave},
            "/v1/cluster/remove": {"POST": self.remove},
            "/v1/cluster/transfer": {"POST": self.transfer},
            "/v1/cluster/check": {"GET": self.check},
            "/v1/snapshots": {"POST": self.snapshot},
            "/v1/snapshots/{index}/blocks/{number}": {"GET": self.snapshot_block},
            "/livez": {"GET": self.livez},
            "/readyz": {"GET": self.readyz},
        }
        for path, methods in table.items():
            router.add(path, Resource(methods, problem.on_error, problem.refuse(*methods)))

    async def status(self, request: Request) -> Reply:
        """The cluster as this node sees it; answered without a quorum too."""
        return reply_media(request).reply(self._node.cluster_status())

    async def join(self, request: Request) -> Reply:
        """Make this node a member of the cluster of a peer; its own data is thrown away if that is said to be right."""
        body = await _fields(request, {"peer": str}, {"discard_data": bool})
        await self._node.membership.join(body["peer"], discard_data=body.get("discard_data", False))
        return await self.status(request)

    async def leave(self, request: Request) -> Reply:
        """Take this node out of its cluster; it goes on alone and empty."""
        await self._node.membership.leave()
        return await self.status(request)

    async def remove(self, request: Request) -> Reply:
        """Take another member out of the cluster."""
        body = await _fields(request, {"node": str}, {"force": bool})
        await self._node.membership.remove(body["node"], force=body.get("force", False))
        return await self.status(request)

    async def transfer(self, request: Request) -> Reply:
        """Have the leader hand over."""
        body = await _fields(request, {}, {"to": str})
        await self._node.membership.transfer_leadership(body.get("to"))
        return await self.status(request)

    async def check(self, request: Request) -> Reply:
        """Whether the cluster is well and this node may be stopped; answered without a quorum too."""
        checks, safe_to_stop = self._node.run_checks(names_owners=request.principal.is_root)
        return reply_media(request).reply({"checks": [one._asdict() for one in checks], "safe_to_stop": safe_to_stop})

    async def snapshot(self, request: Request) -> Reply:
        """Write a snapshot of this node's state now, unless told otherwise with a copy that a backup can be made of."""
        body = await _fields(request, {}, {"portable": bool})
        info = await self._node.take_snapshot(portable=body.get("portable", True))
        fields = {
            "index": info.index,
            "term": info.term,
            "members": dict(info.members),
            "blocks": info.blocks,
            "size_bytes": info.size_bytes,
        }
        return reply_media(request).reply(fields)

    async def snapshot_block(self, request: Request, index: bytes, number: bytes) -> Reply:  # noqa: ARG002
        """One block of a snapshot that was asked for in the last ten minutes."""
        if not (index.isdigit() and number.isdigit() and len(index) < 20 and len(number) < 20):
            raise LmqError("bad_request", "a snapshot's index and a block's number are digits")
        block = await self._node.snapshot_block(int(index), int(number))
        if block is None:
            raise LmqError("not_found", f"there is no block {int(number)} of a snapshot of entry {int(index)} at hand")
        return Reply(200, _BLOCK, block)

    async def livez(self, request: Request) -> Reply:  # noqa: ARG002  a handler takes its request
        """200 as long as the process answers at all. Never depends on a quorum."""
        return Reply(200, _TEXT, b"ok\n")

    async def readyz(self, request: Request) -> Reply:
        """200 if the node can serve; the checks one by one with ``verbose``, or if one fails.

        Anybody may ask; what the checks found, such as other members' addresses, is shown to those who may look at the cluster.
        """
        query = request.parameters()
        excluded = set((query.get(b"exclude") or b"").decode(errors="replace").split(","))
        checks = [check for check in self._node.health() if check[0] not in excluded]
        ready = all(fine for _name, fine, _detail in checks)
        if ready and b"verbose" not in query:
            return Reply(200, _TEXT, b"ok\n")
        tells = request.principal.allows_role(Role.READ)
        lines = [
            f"[{'+' if fine else '-'}]{name} {'ok' if fine else 'failed'}{f': {detail}' if tells else ''}"
            for name, fine, detail in checks
        ]
        lines.append("ready" if ready else "not ready")
        head = _TEXT if ready else _TEXT + RETRY_AFTER
        return Reply(200 if ready else 503, head, "".join(f"{line}\n" for line in lines).encode())


async def _fields(request: Request, needed: Mapping[str, type], allowed: Mapping[str, type]) -> dict[str, Any]:
    """The body: an object with exactly these fields, where `allowed` ones may be missing, and so may a body that needs none.

    Raises:
        LmqError: ``bad_request``.
    """
    known = {**needed, **allowed}
    body: Any = await read_value(request, HTTP_PROPERTY_BYTES_MAX)
    if body is None and not needed:
        return {}
    if (
        isinstance(body, dict)
        and needed.keys() <= body.keys() <= known.keys()
        and all(type(value) is known[key] and value != "" for key, value in body.items())
        and all(len(value) <= _TEXT_CHARACTERS_MAX for value in body.values() if isinstance(value, str))
    ):
        return body
    kinds = {str: "a text", bool: "true or false"}
    wanted = ", ".join(
        f"{key} ({kinds[kind]}{'' if key in needed else ', may be left out'})" for key, kind in known.items()
    )
    raise LmqError("bad_request", f"the body must be an object with {wanted}")
