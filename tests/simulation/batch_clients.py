"""Clients of one subscription, which take it over from each other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lmqcluster.core import Fault, Op
from tests.simulation.clients import SECOND_US, Client
from tests.simulation.model_judge import FIRST, SECOND, SUBSCRIPTION
from tests.simulation.node_clients import body_of

if TYPE_CHECKING:
    from tests.simulation.host import Host
    from tests.simulation.model_judge import ModelJudge
    from tests.simulation.queue_clients import Requests

__all__ = ["BatchClient"]


class BatchClient(Client):
    """Claims the subscription, and then reserves, reads, renews, settles and abandons batches, also after it has lost it."""

    pause_s = 0.6

    def __init__(self, host: Host, replica: Any, requests: Requests, judge: ModelJudge, seed: int) -> None:
        super().__init__(host, replica, requests, seed)
        self._judge = judge
        self._session = 0

    def act(self) -> None:
        rng = self.rng
        if not self._session or rng.random() < 0.05:
            self.send([Op.CLAIM, SUBSCRIPTION], self._claimed)
            return
        batches = self.replica.node.replica.machine.state.batches
        mine = batches.subscriptions.get(SUBSCRIPTION)
        epochs = [] if mine is None else [*mine.batches]
        last = max([0 if mine is None else mine.settled, *epochs])
        for epoch in epochs:
            self._read(batches, epoch)
        lease_us = rng.choice([1, 2, 4]) * SECOND_US
        actions = {
            "reserve": [
                Op.RESERVE,
                SUBSCRIPTION,
                last + rng.choice([0, 1, 1]),
                *self._source(),
                lease_us,
                self._session,
            ],
            "renew": [Op.RENEW, SUBSCRIPTION, lease_us, self._session],
            "settle": [Op.SETTLE_BATCHES, SUBSCRIPTION, rng.choice([last, *epochs]), self._session],
            "abandon": [Op.ABANDON_BATCHES, SUBSCRIPTION, self._session],
        }
        command = actions[rng.choices([*actions], [5, 2, 3, 0.5])[0]]
        if command[2]:
            self.send(command, self._answered)

    def _source(self) -> list[Any]:
        """Return the queues, whether they are all, and the number of messages."""
        rng = self.rng
        return [
            rng.choice([FIRST, [FIRST, SECOND], [SECOND, FIRST]]),
            rng.choice([True, True, False]),
            rng.choice([2, 6]),
        ]

    def _claimed(self, session: int) -> None:
        self._session = session

    def _answered(self, result: Any) -> None:
        if isinstance(result, Fault) and self.rng.random() < 0.5:
            # Perhaps another client has the subscription now.
            self._session = 0

    def _read(self, batches: Any, epoch: int) -> None:
        if batches.subscriptions[SUBSCRIPTION].batches[epoch].sealed:
            found = batches.read(SUBSCRIPTION, epoch, 0, 1_000)
            if found is not None:
                self._judge.read(epoch, tuple(body_of(message.content) for _, _, _, message in found))
