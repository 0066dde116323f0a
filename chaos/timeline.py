"""Runs faults at their times, in a separate thread."""

from __future__ import annotations

import heapq
import threading
import time
from collections.abc import Sequence

from .errors import BrokenPromiseError, DrillError
from .load.history import now_us
from .reports.figures import Window
from .reports.watch import Watch
from .scenario import Plan
from .stage import Stage

__all__ = ["EndedFault", "Timeline"]


class EndedFault:
    """A fault that has ended: its window, and the condition for the recovery of the cluster.

    Attributes:
        window: its times, and the nodes it hit.
        commit: index of the entry that `members` must apply.
        members: names of the nodes that form the cluster now.
    """

    def __init__(self, window: Window, commit: int, members: tuple[str, ...]) -> None:
        self.window = window
        self.commit = commit
        self.members = members


class Timeline:
    """The faults of one drill.

    Attributes:
        ended_faults: faults that have ended.
        troubles: reasons why the drill did not run as planned.
        broken: guarantees that nodes violated.
    """

    def __init__(self, plans: Sequence[Plan], stage: Stage, watch: Watch) -> None:
        self._stage = stage
        self._watch = watch
        self._plans = plans
        self._stop = threading.Event()
        self._begun: dict[int, int] = {}
        self.ended_faults: list[EndedFault] = []
        self.troubles: list[str] = []
        self.broken: list[str] = []

    def stop(self) -> None:
        """Begin no more faults, and end those that have begun."""
        self._stop.set()

    def run(self) -> None:
        """Run all faults; return after the end of the last one."""
        start_s = time.monotonic()
        todo = [(plan.at_s, 0, number) for number, plan in enumerate(self._plans)]
        heapq.heapify(todo)
        while todo:
            at_s, is_end, number = heapq.heappop(todo)
            self._stop.wait(max(0.0, start_s + at_s - time.monotonic()))
            plan = self._plans[number]
            if is_end:
                self._end(number)
            elif not self._stop.is_set() and self._begin(number):
                heapq.heappush(todo, (plan.at_s + plan.for_s, 1, number))

    def _begin(self, number: int) -> bool:
        fault = self._plans[number].fault
        self._begun[number] = now_us()
        try:
            fault.begin(self._stage)
        except DrillError as exc:
            self.troubles.append(f"{fault.kind} could not begin: {exc}")
        except BrokenPromiseError as exc:
            self.broken.append(str(exc))
        return True

    def _end(self, number: int) -> None:
        fault = self._plans[number].fault
        try:
            fault.end(self._stage)
        except DrillError as exc:
            self.troubles.append(f"{fault.kind} could not be ended: {exc}")
        except BrokenPromiseError as exc:
            self.broken.append(str(exc))
        window = Window(fault.kind, tuple(fault.hit), self._begun[number], now_us())
        members = tuple(node.name for node in self._stage.cluster.nodes)
        self.ended_faults.append(EndedFault(window, self._watch.commit(), members))
