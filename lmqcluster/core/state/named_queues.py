"""Commands over several queues that the node has named.

The node evaluates patterns: to do it here would delay every replica in proportion to the number of queues. Names of
queues that no longer exist are skipped.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heapreplace

from ..queue.queue import PASSES_MAX, Queue
from ..state_view import StateView

__all__ = ["NAMES_MAX", "named_queues", "take_in_order"]

NAMES_MAX = 1_000
"""Most queues that one command names, which bounds its time."""
_ONLY_BYTES = {bytes}


def named_queues(state: StateView, names: list[bytes]) -> list[Queue]:
    """Return those of the named queues that exist, each once.

    Raises:
        ValueError: the names are malformed, or there are too many.
    """
    if type(names) not in (list, tuple) or len(names) > NAMES_MAX or not set(map(type, names)) <= _ONLY_BYTES:
        raise ValueError(f"a command names a list of at most {NAMES_MAX} queues")
    found = (state.existing(name) for name in dict.fromkeys(names))
    return [queue for queue in found if queue is not None]


def take_in_order(queues: list[Queue], now_us: int, left: int, take: Callable[[Queue], int]) -> int:
    """Call `take` for the queue with the earliest due time, repeatedly, until nothing is due or wanted any more.

    Args:
        queues: queues to take from.
        now_us: log time.
        left: number of messages wanted.
        take: takes some messages of a queue and returns how many are still wanted.

    Returns:
        The number of exhausted messages dropped on the way; the loop ends with `PASSES_MAX`.
    """
    heads = ((queue.head_us(), queue) for queue in queues)
    heap = [(head_us, queue.name, queue) for head_us, queue in heads if head_us is not None]
    heapify(heap)
    drops = 0
    while heap and heap[0][0] <= now_us and left > 0 and drops < PASSES_MAX:
        queue = heap[0][2]
        passed_before = queue.passed_over
        left = take(queue)
        drops += queue.passed_over - passed_before
        head_us = queue.head_us()
        if head_us is None:
            heappop(heap)
        else:
            heapreplace(heap, (head_us, queue.name, queue))
    return drops
