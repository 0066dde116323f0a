"""Numbered proposals through random nodes; a node acknowledges its own proposal by applying it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random

    from tests.simulation.checkers import Checkers
    from tests.simulation.clock import Clock
    from tests.simulation.host import Host

__all__ = ["Workload"]


class Workload:
    """Proposes one command about every `every_s`, of a size within `size_bytes`, until `until`."""

    def __init__(
        self,
        clock: Clock,
        checkers: Checkers,
        hosts: dict[str, Host],
        rng: random.Random,
        *,
        every_s: float,
        size_bytes: tuple[int, int],
    ) -> None:
        self._clock = clock
        self._checkers = checkers
        self._hosts = hosts
        self._rng = rng
        self._every_s = every_s
        self._size_bytes = size_bytes
        self.until = float("inf")
        self.proposed = 0
        self._quiet_until = 0.0

    def start(self) -> None:
        self._clock.after(self._every_s, self._next)

    def _next(self) -> None:
        if self._clock.now >= self.until:
            return
        self._clock.after(self._rng.expovariate(1.0 / self._every_s), self._next)
        if self._clock.now < self._quiet_until:
            return
        running = [host for host in self._hosts.values() if host.running]
        if running:
            self.propose(self._rng.choice(running), self._rng.randint(*self._size_bytes))

    def pause(self, duration_s: float) -> None:
        """Propose nothing automatically for `duration_s` seconds."""
        self._quiet_until = self._clock.now + duration_s

    def propose(self, host: Host, size_bytes: int = 10) -> bytes:
        """Propose the next number through `host`; return the command."""
        self.proposed += 1
        command = (b"%08d:" % self.proposed).ljust(size_bytes, b".")
        host.input(self._hand_over, host, command)
        return command

    def _hand_over(self, host: Host, command: bytes) -> None:
        assert host.replica is not None
        self._checkers.awaits(host, command)
        host.replica.propose(command)
