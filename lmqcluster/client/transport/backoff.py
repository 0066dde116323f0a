"""Backoff between attempts to reach a node."""

from __future__ import annotations

import random
from dataclasses import dataclass

__all__ = ["Backoff"]


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential backoff with jitter.

    Attributes:
        first_s: wait after every address has failed once, in seconds.
        max_s: longest wait, in seconds. Jitter shortens each wait by up to half, so that clients which lost the same node
            do not reconnect at the same time.
    """

    first_s: float = 0.05
    max_s: float = 2.0

    def delay_s(self, failures: int, addresses: int) -> float:
        """Return the wait after `failures` consecutive failures at `addresses` nodes; the first round has none."""
        rounds = failures // addresses
        if rounds == 0:
            return 0.0
        ceiling = min(self.max_s, self.first_s * 2.0 ** min(rounds - 1, 30))
        return ceiling * random.uniform(0.5, 1.0)
