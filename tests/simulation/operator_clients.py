"""Clients that push to and pull from several queues, and move, redrive, purge, suspend and delete."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from lmqcluster.core import Op
from tests.simulation.clients import SECOND_US, Client
from tests.simulation.model_judge import DEADS, FIRST, MODELLED, SECOND

if TYPE_CHECKING:
    from tests.simulation.host import Host
    from tests.simulation.queue_clients import Requests

__all__ = ["OperatorClient"]

ALL = 1_000
ROW = [None, b"", None]
GROUPS = (b"", b"one", b"two")
NAMED_MAX = 30
"""Dead letters whose sequences the client remembers, most of them elsewhere by now."""


class OperatorClient(Client):
    """Pushes, pulls and settles in the queues of the model, and performs an operation on a whole queue now and then."""

    pause_s = 0.5

    def __init__(self, host: Host, replica: Any, requests: Requests, seed: int) -> None:
        super().__init__(host, replica, requests, seed)
        self._dead: deque[int] = deque(maxlen=NAMED_MAX)
        for queue in (FIRST, SECOND, DEADS):
            self.send([Op.SET_PROPERTIES, queue, MODELLED[queue]])

    def act(self) -> None:
        actions = {
            self._push: 5,
            self._push_each: 1,
            self._pull: 4,
            self._pull_first: 3,
            self._look_at_dead: 2,
            self._move: 1,
            self._redrive: 2,
            self._purge: 1,
            self._suspend: 1.5,
            self._delete: 0.3,
        }
        self.rng.choices(list(actions), list(actions.values()))[0]()

    def _push(self) -> None:
        rows = [
            [self.requests.content(), *ROW, [-1, 0, 0, 0, b"", self.rng.choice(GROUPS)]]
            for _ in range(self.rng.choice([1, 1, 4]))
        ]
        self.send([Op.PUSH_ROWS, self.rng.choice([FIRST, SECOND]), rows])

    def _push_each(self) -> None:
        self.send([Op.PUSH_EACH, [SECOND, FIRST], [self.requests.content(), *ROW]])

    def _pull(self) -> None:
        self.send([Op.PULL, self.rng.choice([FIRST, SECOND]), self.rng.choice([1, 2, 5])], self._settle)

    def _pull_first(self) -> None:
        self.send([Op.PULL_FIRST, [FIRST, SECOND], self.rng.choice([1, 2, 5])], self._settle)

    def _settle(self, delivered: Any) -> None:
        for queue, number, _remaining, _message in delivered or ():
            chance = self.rng.random()
            if chance < 0.9:
                self.later(0.3, self.send, [Op.ACK if chance < 0.5 else Op.NACK, queue, [number]])

    def _look_at_dead(self) -> None:
        self.send([Op.PULL, DEADS, 5, SECOND_US // 5], self._name)

    def _name(self, delivered: Any) -> None:
        self._dead.extend(message.sequence for _queue, _number, _remaining, message in delivered or ())

    def _move(self) -> None:
        source, target = self.rng.choice([(FIRST, SECOND), (SECOND, FIRST), (DEADS, FIRST)])
        self.send([Op.MOVE, source, target, self.rng.choice([1, 3, ALL])])

    def _sequences(self) -> list[int]:
        return self.rng.sample([*self._dead], min(len(self._dead), 8))

    def _redrive(self) -> None:
        target = self.rng.choice([b"", b"", SECOND, [FIRST]])
        self.send([Op.REDRIVE, DEADS, target, b"", ALL, self._sequences()])

    def _purge(self) -> None:
        by_sequence = [Op.PURGE, DEADS, ALL, b"", self._sequences()]
        self.send(self.rng.choice([by_sequence, by_sequence, [Op.PURGE, FIRST, 3]]))

    def _suspend(self) -> None:
        self.send([Op.SUSPEND, self.rng.choice([FIRST, SECOND]), self.rng.choice([False, False, True])])

    def _delete(self) -> None:
        self.send([Op.DELETE, SECOND])
        self.send([Op.SET_PROPERTIES, SECOND, MODELLED[SECOND]])
