"""The state that the connections of one Kestrel port share."""

from __future__ import annotations

from ...node.access.access import Principal
from ...node.node import Node
from ...wire.address import is_loopback
from ...wire.errors import LmqError
from .status import ServerStatus

__all__ = ["PortContext"]


class PortContext:
    """The node behind a port, its limits, and the principals of its clients.

    Attributes:
        protocol: the name of the protocol.
        node: the node whose queues are served.
        status: the operations that clients may currently use.
        counts: Kestrel's statistics.
        open_reads_max: maximum number of open reads of one connection on one queue.
        logs_requests: whether each request is logged.
        is_rated: whether a request rate limit applies.
        served_as: the name of the token with whose role all clients are served; empty for none.
        serves_all: whether clients beyond loopback are served without a token.
    """

    def __init__(self, protocol: str, node: Node, status: ServerStatus) -> None:
        config = node.config
        self.protocol = protocol
        self.node = node
        self.status = status
        self.counts = node.observed.kestrel
        self.open_reads_max = config.kestrel_open_reads_max
        self.logs_requests = config.request_log == "on"
        self.is_rated = node.gates.kestrel[protocol].bounds.requests_per_s > 0
        self.served_as: str = getattr(config, f"{protocol}_as")
        self.serves_all = config.kestrel_insecure == "on"

    def principal(self, address: object) -> Principal:
        """Return the principal of a client at this address.

        Raises:
            LmqError: ``unauthorized``, or the reason why the node serves no client.
        """
        access = self.node.access
        if access.outside is not None:
            raise access.outside.again()
        if self.served_as:
            found = access.named(self.served_as)
            if found is None:
                raise LmqError(
                    "unauthorized", f"there is no token {self.served_as!r}, as which clients of this port are served"
                )
            return found
        if access.anonymous is None or not (self.serves_all or is_loopback(address)):
            raise access.refusal()
        return access.anonymous
