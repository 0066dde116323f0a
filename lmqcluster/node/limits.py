"""What one client address may do on one port: so many connections, so many requests a second.

A client that is at a limit is told so; the others do not notice it.
"""

from __future__ import annotations

import asyncio

import structlog

__all__ = ["ARRIVAL_BYTES_PER_S", "ClientBudget", "ClientLimits"]

log = structlog.get_logger("lmq.limits")

ARRIVAL_BYTES_PER_S = 64 * 1024
"""A request that arrives more slowly than this gets no more time than a small one."""
_BURST_S = 1.0
"""A client that was quiet may catch up on so many seconds."""


class ClientBudget:
    """What one address has used.

    Attributes:
        connections: how many are open.
    """

    __slots__ = ("_at_s", "_left", "_rate", "connections", "noted")

    def __init__(self, rate: int) -> None:
        self.connections = 0
        self.noted = False
        self._rate = rate
        self._left = rate * _BURST_S
        self._at_s = 0.0

    def take(self, now_s: float) -> float:
        """Use up one request; returns 0, or the seconds after which it may be tried again."""
        rate = self._rate
        left = min(rate * _BURST_S, self._left + (now_s - self._at_s) * rate)
        self._at_s = now_s
        if left < 1.0:
            self._left = left
            return (1.0 - left) / rate
        self._left = left - 1.0
        return 0.0


class ClientLimits:
    """The budgets of all addresses that are, or have just been, connected to a port.

    Attributes:
        rate: requests a second, 0 for any number.
        refused_total: connections that were refused.
    """

    def __init__(self, port: str, connections_max: int, rate: int) -> None:
        """Take the limits; `port` is its name for people."""
        self.rate = rate
        self.refused_total = 0
        self._port = port
        self._connections_max = connections_max
        self._budgets: dict[str, ClientBudget] = {}

    def connected(self, peer: object) -> tuple[ClientBudget, bool]:
        """A client has connected: its budget, and whether it may stay. `disconnected` must follow in any case."""
        address = _address(peer)
        budget = self._budgets.get(address)
        if budget is None:
            budget = self._budgets[address] = ClientBudget(self.rate)
        budget.connections += 1
        allowed = budget.connections <= self._connections_max
        if not allowed:
            self.refused_total += 1
            if not budget.noted:
                # Once: whoever floods a node with connections shall not flood its log.
                budget.noted = True
                log.warning("connections refused", port=self._port, peer=address, limit=self._connections_max)
        return budget, allowed

    def disconnected(self, peer: object, budget: ClientBudget) -> None:
        """A client's connection has ended."""
        budget.connections -= 1
        if not budget.connections:
            # Only when the budget is full again: to connect anew must not give a client more than its share.
            asyncio.get_running_loop().call_later(_BURST_S, self._forget, _address(peer))

    def _forget(self, address: str) -> None:
        budget = self._budgets.get(address)
        if budget is not None and not budget.connections:
            del self._budgets[address]


def _address(peer: object) -> str:
    return str(peer[0]) if isinstance(peer, tuple) and peer else ""
