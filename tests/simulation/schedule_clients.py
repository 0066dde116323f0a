"""A client that sets, pauses, runs and removes schedules at its node."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from lmqcluster.core import Op
from lmqcluster.core.log.commands import ScheduleAction
from lmqcluster.node.queues.schedules.cron import cron_rule
from lmqcluster.node.queues.schedules.supply import upcoming
from tests.simulation.node_clients import Silent
from tests.simulation.schedule_judge import SCHEDULED

if TYPE_CHECKING:
    from tests.simulation.host import Host
    from tests.simulation.queue_clients import Requests

__all__ = ["ScheduleClient"]

SECOND_US = 1_000_000
PAUSE_S = 4.0
NAMES = (b"one", b"two", b"three")
RULES = ("* * * * * *", "*/2 * * * * *", "*/7 * * * * *")


class ScheduleClient:
    """Sends a random command from time to time. All of its schedules push into one queue."""

    def __init__(self, host: Host, replica: Any, requests: Requests, seed: int) -> None:
        self._replica = replica
        self._requests = requests
        # A separate generator, so that the numbers of the node's other clients do not change.
        self._rng = random.Random(f"{seed}:{host.id}:{host.life}:schedules")
        self._later()

    def _later(self) -> None:
        self._replica.loop.call_later(self._rng.expovariate(1.0 / PAUSE_S), self._act)

    def _act(self) -> None:
        if self._requests.is_at_rest():
            return
        schedules = self._replica.node.replica.machine.state.schedules
        if schedules.ahead_us is not None:
            name = self._rng.choice(NAMES)
            was = b"" if schedules.find(name) is None else SCHEDULED
            self._replica.submit(self._command(name, was, schedules.unix_us()), Silent())
        self._later()

    def _command(self, name: bytes, was: bytes, now_us: int) -> list[Any]:
        rng = self._rng
        kind = rng.choices(["interval", "cron", "change", "supply"], [3, 4, 6, 3])[0]
        known = self._replica.node.replica.machine.state.schedules.find(name)
        if kind == "supply" and known is not None and known.known_us:
            # Like the supply of a leader that has been replaced: it has no effect.
            stale = [known.known_us + SECOND_US]
            return [Op.SUPPLY_TIMES, [[name, known.serial, known.known_us - SECOND_US, stale, 0, False]]]
        jitter_us, once = rng.choice([0, 0, SECOND_US // 2]), rng.choice([0, 1])
        if kind == "change":
            actions = (ScheduleAction.PAUSE, ScheduleAction.RESUME, ScheduleAction.RESUME, ScheduleAction.RUN)
            return [Op.CHANGE_SCHEDULE, name, int(rng.choice([*actions, ScheduleAction.REMOVE])), was]
        times: list[int] = []
        rule: list[Any] = [rng.choice([1, 1, 2, 5]) * SECOND_US, b"", b""]
        if kind == "cron":
            text = rng.choice(RULES)
            times = upcoming(cron_rule(text, "UTC"), now_us, now_us, 0, 0).times[: rng.choice([1, 2, 40])]
            rule = [0, text.encode(), b"UTC"]
        end_us = now_us + 20 * SECOND_US if kind == "interval" and rng.random() < 0.2 else 0
        definition = [SCHEDULED, [None, b"", []], [*rule, 0, end_us, jitter_us, once]]
        return [Op.SET_SCHEDULE, name, definition, b"body", times, False, was]
