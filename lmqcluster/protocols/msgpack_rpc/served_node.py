"""Interface of a node for the port, implemented by `Node` and by the node of `lmqcluster.testing`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from ...node.access.access import Access
    from ...node.access.tls import ServerTls
    from ...node.config.config import NodeConfig
    from ...node.gates import Gates
    from ...node.queues.service import QueueService
    from ...ports.front_ends.processes import FrontEnds

__all__ = ["ServedNode"]


class _Observed(Protocol):
    @property
    def connections(self) -> dict[str, Callable[[], int]]: ...


class _Membership(Protocol):
    @property
    def on_leave(self) -> list[Callable[[], None]]: ...


class ServedNode(Protocol):
    """The attributes of `Node` that the port uses."""

    @property
    def access(self) -> Access: ...
    @property
    def config(self) -> NodeConfig: ...
    @property
    def front_ends(self) -> FrontEnds | None: ...
    @property
    def gates(self) -> Gates: ...
    @property
    def membership(self) -> _Membership: ...
    @property
    def observed(self) -> _Observed: ...
    @property
    def service(self) -> QueueService: ...
    @property
    def tls(self) -> ServerTls | None: ...

    def cluster_status(self) -> dict[str, Any]:
        """Return the cluster as this node sees it."""
