"""The HTTP port: LMQ's routes, the ``/v1`` routes and health."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .console import ConsoleRoutes
from .kestrel_routes import KestrelStatsRoutes
from .lmq import errors as lmq_errors
from .lmq.messages import MessageRoutes
from .lmq.properties import PropertyRoutes
from .lmq.stats import StatsRoute
from .metrics_routes import MetricsRoutes
from .openapi.route import OpenapiRoute
from .server.port import HttpPort
from .server.replies import problem
from .server.replies.reply import Reply
from .server.routing import Router
from .v1.clients import ClientRoutes
from .v1.cluster import ClusterRoutes
from .v1.jobs import JobRoutes
from .v1.log_level import LogLevelRoute
from .v1.move_tasks import MoveTaskRoutes
from .v1.operations import QueueOperationRoutes
from .v1.overview import OverviewRoutes
from .v1.queues import QueueRoutes
from .v1.schedules import ScheduleRoutes
from .v1.sessions import SessionRoutes
from .v1.subscriptions import SubscriptionRoutes
from .v1.tokens import TokenRoutes
from .v1.transactions import TransactionRoutes

if TYPE_CHECKING:
    from ...node.node import Node
    from ...wire.errors import LmqError
    from .server.requests.request import Request

__all__ = ["LmqHttpPort"]

_SERVED_OUTSIDE = ("/v1/cluster", "/v1/overview", "/v1/log-level", "/metrics", "/console")
"""Path prefixes that a node outside a cluster still serves: its own state, and joining a cluster."""


class LmqHttpPort(HttpPort):
    """Port that serves HTTP for one node."""

    def __init__(self, node: Node, host: str, port: int) -> None:
        """Prepare to listen on `host` and `port`; port 0 takes a free one."""
        super().__init__(node, host, port, node.gates.http, "http", Router())
        MessageRoutes(node, self._waits).add_to(self.router)
        PropertyRoutes(node).add_to(self.router)
        StatsRoute(node).add_to(self.router)
        QueueRoutes(node, self._waits).add_to(self.router)
        QueueOperationRoutes(node).add_to(self.router)
        MoveTaskRoutes(node).add_to(self.router)
        TransactionRoutes(node).add_to(self.router)
        SessionRoutes(node, self._waits).add_to(self.router)
        ScheduleRoutes(node).add_to(self.router)
        SubscriptionRoutes(node).add_to(self.router)
        JobRoutes(node).add_to(self.router)
        ClusterRoutes(node).add_to(self.router)
        OpenapiRoute().add_to(self.router)
        TokenRoutes(node).add_to(self.router)
        ClientRoutes(node).add_to(self.router)
        MetricsRoutes(node).add_to(self.router)
        KestrelStatsRoutes(node).add_to(self.router)
        OverviewRoutes(node).add_to(self.router)
        ConsoleRoutes().add_to(self.router)
        LogLevelRoute().add_to(self.router)

    def _refused(self, request: Request, error: LmqError) -> Reply:
        return problem.on_error(error) if request.raw_path.startswith("/v1/") else lmq_errors.on_error(error)

    def _not_found(self, segments: list[bytes]) -> Reply:
        return problem.route_not_found() if segments[:1] == [b"v1"] else Reply(404)

    def _is_served_outside(self, target: str) -> bool:
        return target.startswith(_SERVED_OUTSIDE)
