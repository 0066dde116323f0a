"""How long to wait before the next attempt to reach a node."""

from __future__ import annotations

import random
from dataclasses import dataclass

__all__ = ["Backoff"]


@dataclass(frozen=True, slots=True)
class Backoff:
    """Jittered exponential back-off.

    Attributes:
        first_s: about how long to wait after every address has failed once, in seconds.
        max_s: about the longest wait, in seconds. All waits are spread over half to the whole of their length, so that
            clients which lost the same node do not come back at once.
    """

    first_s: float = 0.05
    max_s: float = 2.0

    def delay_s(self, failures: int, addresses: int) -> float:
        """The wait before the next attempt, after `failures` in a row at `addresses` nodes: none within the first round."""
        rounds = failures // addresses
        if rounds == 0:
            return 0.0
        ceiling = min(self.max_s, self.first_s * 2.0 ** min(rounds - 1, 30))
        return ceiling * random.uniform(0.5, 1.0)
