"""Checks whether a short history of one queue is linearizable (Wing and Gong's search).

The model: a push appends; a pull takes the head under a lease that outlasts the history, or finds nothing; an ack
removes a leased message, once. An operation of unknown outcome may have taken effect at any time after its begin, or
never; a pull of unknown outcome may also have taken the head and returned it to its position later, as a node does when
its client disconnects.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..load.history import Event

__all__ = ["STEPS_MAX", "is_linearizable"]

STEPS_MAX = 400_000
"""Number of states to visit before the search is abandoned."""
_NEVER = 1 << 62


@dataclass(frozen=True, slots=True)
class _State:
    """The queue: waiting values with their positions, in order; leased values; values taken by pulls of unknown
    outcome.
    """

    waiting: tuple[tuple[int, str], ...] = ()
    leased: frozenset[str] = frozenset()
    held: frozenset[tuple[int, str]] = frozenset()
    pushed: int = 0


def is_linearizable(events: Sequence[Event], steps_max: int = STEPS_MAX) -> bool | None:
    """Return whether there is an order of these events that fits the model; None if `steps_max` states did not decide
    it.

    Args:
        events: pushes, pulls and acks of one queue that began empty; every value was pushed only once.
        steps_max: maximum number of states to visit.
    """
    operations = sorted((event for event in events if event.outcome != "failed" or _is_refused_ack(event)), key=_begin)
    receipts = {event.receipt: event.value or "" for event in operations if event.op == "pull" and event.receipt}
    search = _Search(operations, receipts)
    everything = (1 << len(operations)) - 1
    optional = sum(1 << i for i, event in enumerate(operations) if event.outcome == "unknown")
    stack: list[tuple[int, _State]] = [(0, _State())]
    seen = set(stack)
    while stack:
        if len(seen) > steps_max:
            return None
        done, state = stack.pop()
        if done | optional == everything:
            return True
        for following in search.following(done, state):
            if following not in seen:
                seen.add(following)
                stack.append(following)
    return False


def _begin(event: Event) -> int:
    return event.time_us


def _is_refused_ack(event: Event) -> bool:
    """Return whether this is an ack after the lease expired, which is not an error."""
    return event.op == "ack" and event.outcome == "failed" and event.error is None


class _Search:
    def __init__(self, operations: Sequence[Event], receipts: dict[str, str]) -> None:
        self._operations = operations
        self._receipts = receipts
        self._ends = [_NEVER if event.outcome == "unknown" else event.end_us for event in operations]

    def following(self, done: int, state: _State) -> Iterator[tuple[int, _State]]:
        """Yield the possible next operations: any that began before every other remaining one ended."""
        first_end = min((end for i, end in enumerate(self._ends) if not done >> i & 1), default=_NEVER)
        for i, event in enumerate(self._operations):
            if event.time_us > first_end:
                break
            if not done >> i & 1:
                for after in self._effects(event, state):
                    yield done | 1 << i, after
        for place in state.held:
            yield done, _State(tuple(sorted((*state.waiting, place))), state.leased, state.held - {place}, state.pushed)

    def _effects(self, event: Event, state: _State) -> Iterator[_State]:
        if event.op == "push":
            place = (state.pushed, event.value or "")
            yield _State((*state.waiting, place), state.leased, state.held, state.pushed + 1)
        elif event.op == "pull":
            yield from self._apply_pull(event, state)
        elif event.op == "ack":
            value = self._receipts.get(event.receipt or "", "")
            if _is_refused_ack(event):
                if value not in state.leased:
                    yield state
            elif value in state.leased:
                yield _State(state.waiting, state.leased - {value}, state.held, state.pushed)

    @staticmethod
    def _apply_pull(event: Event, state: _State) -> Iterator[_State]:
        if event.outcome == "unknown":
            if state.waiting:
                yield _State(state.waiting[1:], state.leased, state.held | {state.waiting[0]}, state.pushed)
        elif event.value is None:
            if not state.waiting:
                yield state
        elif state.waiting and state.waiting[0][1] == event.value:
            yield _State(state.waiting[1:], state.leased | {event.value}, state.held, state.pushed)
