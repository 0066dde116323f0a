"""``/v1/cluster`` and the health routes, for operators and their tools."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ....core import Role
from ....wire.errors import LmqError
from ....wire.limits import HTTP_PROPERTY_BYTES_MAX
from ..server.barrier_read import confirm, marked
from ..server.replies import problem
from ..server.replies.common_replies import RETRY_AFTER
from ..server.replies.reply import Reply
from ..server.routing import Resource, Router
from .bodies.attention import attention_for
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
    """Routes that show the cluster and the health of this node, and that change the membership."""

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
        """Return the cluster as this node sees it; needs no quorum."""
        return reply_media(request).reply(self._node.cluster_status())

    async def join(self, request: Request) -> Reply:
        """Make this node a member of the cluster of a peer. Discard the node's own data only if the request permits it."""
        body = await _fields(request, {"peer": str}, {"discard_data": bool})
        await self._node.membership.join(body["peer"], discard_data=body.get("discard_data", False))
        return await self.status(request)

    async def leave(self, request: Request) -> Reply:
        """Remove this node from its cluster; it then serves no clients."""
        await self._node.membership.leave()
        return await self.status(request)

    async def remove(self, request: Request) -> Reply:
        """Remove another member from the cluster."""
        body = await _fields(request, {"node": str}, {"force": bool})
        await self._node.membership.remove(body["node"], force=body.get("force", False))
        return await self.status(request)

    async def transfer(self, request: Request) -> Reply:
        """Make the leader transfer its leadership."""
        body = await _fields(request, {}, {"to": str})
        await self._node.membership.transfer_leadership(body.get("to"))
        return await self.status(request)

    async def check(self, request: Request) -> Reply:
        """Return whether the cluster is healthy and this node can be stopped safely, and the queues that need attention."""
        checks, safe_to_stop = self._node.run_checks(names_owners=request.principal.is_root)
        media = reply_media(request)
        answer = {
            "checks": [one._asdict() for one in checks],
            "safe_to_stop": safe_to_stop,
            "attention": attention_for(self._node.attention, request, media),
        }
        return media.reply(answer)

    async def snapshot(self, request: Request) -> Reply:
        """Write a snapshot of this node's state now; by default with a copy for a backup, which a cut-off node refuses."""
        body = await _fields(request, {}, {"portable": bool, "stale_ok": bool})
        portable = body.get("portable", True)
        # The snapshots of idle nodes must be of the same entry, so that they can be compared.
        stale = portable and await confirm(self._node.service)
        if stale and not body.get("stale_ok", False):
            text = "this node is cut off from its cluster and does not know the latest changes: back up another node"
            raise LmqError("no_leader", f"{text}, or accept an old state (stale_ok; lmq-admin backup --stale-ok)")
        info = await self._node.take_snapshot(portable=portable)
        fields = {
            "index": info.index,
            "term": info.term,
            "members": dict(info.members),
            "blocks": info.blocks,
            "size_bytes": info.size_bytes,
            "stale": stale,
        }
        return marked(reply_media(request).reply(fields), stale=stale)

    async def snapshot_block(self, request: Request, index: bytes, number: bytes) -> Reply:  # noqa: ARG002
        """Return one block of a snapshot that was requested in the last ten minutes."""
        if not (index.isdigit() and number.isdigit() and len(index) < 20 and len(number) < 20):
            raise LmqError("bad_request", "a snapshot's index and a block's number are digits")
        block = await self._node.snapshot_block(int(index), int(number))
        if block is None:
            raise LmqError("not_found", f"there is no block {int(number)} of a snapshot of entry {int(index)} at hand")
        return Reply(200, _BLOCK, block)

    async def livez(self, request: Request) -> Reply:  # noqa: ARG002  a handler takes its request
        """Return 200 if the process answers at all. Never depends on a quorum."""
        return Reply(200, _TEXT, b"ok\n")

    async def readyz(self, request: Request) -> Reply:
        """Return 200 if the node can serve. List the checks with ``verbose``, or if one fails.

        Every client may ask. The findings of the checks, such as addresses of other members, are shown only to clients
        that may read the cluster's state.
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
    """Return the body: an object with the `needed` and perhaps the `allowed` fields. An absent body counts as empty.

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
