"""Figures for people: ``/v1/overview``, and rates, waiting times and the last hour of one queue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ....node.metrics.history import PERIOD_S
from ..server.barrier_read import marked, not_found, refresh
from ..server.replies.problem import on_error, refuse
from ..server.requests.target import check_name
from ..server.routing import Resource, Router
from .bodies.attention import attention_for
from .bodies.media import reply_media

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ....node.node import Node
    from ..server.replies.reply import Reply
    from ..server.requests.request import Request
    from ..server.routing import Handler

__all__ = ["OverviewRoutes"]


class OverviewRoutes:
    """Routes with figures of the whole cluster in one answer, cheap enough for many requests a second."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def add_to(self, router: Router) -> None:
        """Register the routes."""
        table: Mapping[str, Mapping[str, Handler]] = {
            "/v1/overview": {"GET": self.overview},
            "/v1/queues/{name}/stats": {"GET": self.queue_stats},
            "/v1/queues/{name}/history": {"GET": self.queue_history},
        }
        for path, methods in table.items():
            router.add(path, Resource(methods, on_error, refuse(*methods)))

    async def overview(self, request: Request) -> Reply:
        """Return sums over all queues, the cluster and the state of its members; needs no quorum.

        The answer needs no request to the cluster: queues are those of the local replica, and figures of other members
        are one or two seconds old. With ``history``, the answer includes the sums of the last hour, ten seconds apart.
        """
        node = self._node
        await node.peer_figures.look()
        totals = await node.totals.current()
        cluster = node.cluster_status()
        for member in cluster["nodes"]:
            member.update(node.peer_figures.describe(member["id"]))
        media = reply_media(request)
        checks, _safe_to_stop = node.run_checks(names_owners=request.principal.is_root)
        answer: dict[str, Any] = {
            "cluster": cluster,
            "totals": totals.fields(),
            "checks": [one._asdict() for one in checks],
            "attention": attention_for(node.attention, request, media),
        }
        if b"history" in request.parameters():
            answer["history"] = [one.fields() for one in node.history.sums]
        return media.reply(answer)

    async def queue_stats(self, request: Request, name: bytes) -> Reply:
        """Return rates over the last minutes, and the waiting times of messages delivered in the last minute."""
        check_name(name)
        stale = await refresh(self._node.service)
        info = self._node.service.queue(name)
        if info is None:
            raise not_found(name, stale=stale)
        stats = self._node.stats.snapshot(
            name, pushed_total=info.counters["pushed_total"], pulled_total=info.counters["pulled_total"]
        )
        return marked(reply_media(request).reply(stats), stale=stale)

    async def queue_history(self, request: Request, name: bytes) -> Reply:
        """Return samples of the last hour, if the queue is among the busiest of this node."""
        check_name(name)
        stale = await refresh(self._node.service)
        if self._node.service.queue(name) is None:
            raise not_found(name, stale=stale)
        samples = self._node.history.of_queue(name)
        answer = {
            "kept": samples is not None,
            "period_s": PERIOD_S,
            "uptime_s": self._node.totals.uptime_s(),
            "history": samples or [],
        }
        return marked(reply_media(request).reply(answer), stale=stale)
