"""Faults of the network, and paused processes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.fault_base import FaultBase
from tests.simulation.network import IDLE_LIMIT_S

if TYPE_CHECKING:
    from tests.simulation.host import Host

__all__ = ["NetworkFaults"]


class NetworkFaults(FaultBase):
    """Slow, cut and one-way links, and pauses."""

    def _slow(self) -> None:
        """Give each direction of a pair its own delay: a constant part and a smaller random one."""
        low_s, high_s = self._profile.slow_s
        sender, receiver = self._two()
        base = self._rng.uniform(low_s, high_s)
        if self._rng.random() < 0.2:
            self._network.slow(sender, receiver, self._profile.delay_s)
            return
        self._checkers.note("slow", f"{sender}>{receiver} {base:.3f} s")
        self._network.slow(sender, receiver, (base, min(high_s, base * self._rng.uniform(1.0, 1.5))))

    def _cut(self) -> None:
        self._cut_pairs([self._two()], self._duration())

    def _isolate(self) -> None:
        victim = self._leader_or_any()
        self._cut_pairs([(victim, other) for other in sorted(self._hosts) if other != victim], self._duration())

    def _split(self) -> None:
        ids = sorted(self._hosts)
        self._rng.shuffle(ids)
        half = self._rng.randint(1, len(ids) // 2)
        self._cut_pairs([(one, other) for one in ids[:half] for other in ids[half:]], self._duration())

    def _flap(self) -> None:
        """Break the same connection repeatedly."""
        one, other = self._two()
        for nth in range(self._rng.randint(3, 8)):
            self._clock.after(nth * self._rng.uniform(0.2, 0.6), self._break_off, one, other)

    def _break_off(self, one: str, other: str) -> None:
        self._checkers.note("flap", f"{one} {other}")
        self._network.break_off(one, other, notice_s=(0.0, 0.1))

    def _cut_pairs(self, pairs: list[tuple[str, str]], duration_s: float) -> None:
        notice = self._notice()
        self._checkers.note("cut", f"{pairs} for {duration_s:.3f} s")
        for one, other in pairs:
            self._network.cut(one, other, notice_s=notice)
            self._clock.after(duration_s, self._network.join, one, other)

    def _one_way(self) -> None:
        """Block one direction of a pair, or of all pairs of one node, for a while."""
        if self._rng.random() < 0.5:
            ways = [self._two()]
        else:
            victim = self._leader_or_any()
            others = [other for other in sorted(self._hosts) if other != victim]
            outward = self._rng.random() < 0.5
            ways = [(victim, other) if outward else (other, victim) for other in others]
        duration_s = self._duration()
        self._checkers.note("one way", f"{ways} for {duration_s:.3f} s")
        for sender, receiver in ways:
            self._network.block(sender, receiver)
            self._clock.after(duration_s, self._network.unblock, sender, receiver)

    def _pause(self) -> None:
        host = self._hosts[self._leader_or_any()]
        if host.paused or not host.running:
            return
        duration_s = self._duration()
        self._checkers.note("pause", f"{host.id} for {duration_s:.3f} s")
        host.pause()
        if duration_s > IDLE_LIMIT_S:
            for other in sorted(self._hosts):
                if other != host.id:
                    generations = self._network.generations(host.id, other)
                    self._clock.after(IDLE_LIMIT_S, self._expire_if_paused, host, other, generations)
        self._clock.after(duration_s, host.resume)

    def _expire_if_paused(self, host: Host, other: str, generations: list[int | None]) -> None:
        if host.paused:
            self._network.expire(host.id, other, generations)
