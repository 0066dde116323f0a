"""Parts that the clients of one node share."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, ClassVar

from tests.simulation.node_clients import Silent

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmqcluster.node.commit.proposer import PendingCommand
    from tests.simulation.host import Host
    from tests.simulation.queue_clients import Requests

__all__ = ["SECOND_US", "Client"]

SECOND_US = 1_000_000


class Client:
    """Acts at its node from time to time, until the run is at rest.

    Attributes:
        pause_s: mean time between two actions.
        name: of the node and its life.
        replica: the node.
        requests: what the clients of a run share.
        rng: a separate generator, so that the numbers of the node's other clients do not change.
    """

    pause_s: ClassVar[float]

    def __init__(self, host: Host, replica: Any, requests: Requests, seed: int) -> None:
        self.name = f"{host.id}:{host.life}"
        self.replica = replica
        self.requests = requests
        self.rng = random.Random(f"{seed}:{self.name}:{type(self).__name__}")
        self.later(self.pause_s, self._act)

    def later(self, mean_s: float, callback: Callable[..., None], *arguments: Any) -> None:
        """Call back after a random time."""
        self.replica.loop.call_later(self.rng.expovariate(1.0 / mean_s), callback, *arguments)

    def _act(self) -> None:
        if not self.requests.is_at_rest():
            self.act()
            self.later(self.pause_s, self._act)

    def act(self) -> None:
        """Carry out one action."""
        raise NotImplementedError

    def send(self, command: list[Any], then: Callable[[Any], None] | None = None) -> None:
        """Send a command; its result, if it arrives, is passed on."""
        self.replica.submit(command, Silent() if then is None else _Answer(then))


class _Answer(Silent):
    def __init__(self, then: Callable[[Any], None]) -> None:
        self._then = then

    def completed(self, pending: PendingCommand, result: Any) -> None:
        self._then(result)
