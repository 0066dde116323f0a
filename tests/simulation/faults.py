"""The nemesis: draws faults from the run's seed, applies them and reverts each after a while."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.ambushes import Ambushes
from tests.simulation.disk_faults import DiskFaults

if TYPE_CHECKING:
    import random

    from tests.simulation.run import Simulation

__all__ = ["Nemesis"]


class Nemesis(DiskFaults, Ambushes):
    """Applies a fault about every `profile.fault_every_s`, drawn from `profile.faults`, until `until`."""

    def __init__(self, simulation: Simulation, rng: random.Random) -> None:
        super().__init__(simulation, rng)
        self.until = float("inf")

    def start(self) -> None:
        if self._profile.faults:
            self._clock.after(self._profile.fault_every_s, self._next)

    def _next(self) -> None:
        if self._clock.now >= self.until:
            return
        self._clock.after(self._rng.expovariate(1.0 / self._profile.fault_every_s), self._next)
        kinds = list(self._profile.faults)
        kind = self._rng.choices(kinds, [self._profile.faults[each] for each in kinds])[0]
        getattr(self, f"_{kind}")()

    def heal(self) -> None:
        """End all faults at once."""
        self._checkers.note("heal", "")
        self.is_over = True
        self._network.heal()
        self._checkers.on_election.clear()
        for host in self._hosts.values():
            host.resume()
            host.spare_the_disk()
