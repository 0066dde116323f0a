"""The default rules, and how a change of them reaches the queues."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..queue.properties import Rule, matching
from ..state_view import StateView
from .sorted_names import SortedNames

__all__ = ["SPREAD_STEPS", "DefaultRules"]

SPREAD_STEPS = 200
"""Most queues to which one batch applies changed rules."""


class DefaultRules:
    """The default rules.

    A change reaches the queues in the order of their names, a bounded number with each batch. Otherwise settings
    change only if a command names the queue. So they change at the same log entry on every replica, regardless of
    snapshots. A change made while another one spreads follows when that has reached all queues; of several such
    changes only the last counts.

    Attributes:
        rules: the rules as last set.
    """

    def __init__(self, state: StateView, names: SortedNames) -> None:
        self._state = state
        self._names = names
        self.rules: list[Rule] = []
        self._current: list[Rule] = self.rules
        # While a change spreads: the previous rules, for the queues whose names are not less than `_reached`.
        self._before: list[Rule] = []
        self._reached: bytes | None = None

    def __bool__(self) -> bool:
        """Return whether a queue may have properties by a rule."""
        return bool(self._current or self._before)

    def is_spreading(self) -> bool:
        """Return whether the last change has not reached all queues yet."""
        return self._reached is not None

    def of(self, name: bytes) -> Mapping[str, Any]:
        """Return the default properties of the queue `name`, which need not exist."""
        rules = self._current if self._reached is None or name < self._reached else self._before
        return matching(rules, name)

    def replace(self, rules: list[Rule]) -> None:
        """Replace the rules, and apply the new ones to the first queues."""
        self.rules = rules
        if self._reached is None:
            self._begin()
        self.expire(0, SPREAD_STEPS)
        if self._reached is not None:
            self._state.expiry.at(0)

    def _begin(self) -> None:
        self._before, self._current, self._reached = self._current, self.rules, b""

    # --- Source
    # -------------------------------------------------------------------------------------------------------

    def due_us(self) -> int | None:
        """Return 0 while a change spreads."""
        return None if self._reached is None else 0

    def expire(self, now_us: int, limit: int | None) -> int:  # noqa: ARG002
        """Apply the rules to the next `limit` queues (None: all of them); return how many there were."""
        done = 0
        while self._reached is not None and done != limit:
            names = self._names.from_name(self._reached)[: None if limit is None else limit - done]
            for name in names:
                # The least name that is greater.
                self._reached = name + b"\0"
                self._state.resolve(self._state.queues[name])
            done += len(names)
            if not names:
                self._before, self._reached = [], None
                if self.rules is not self._current:
                    self._begin()
        return done

    # --- snapshots ------------------------------------------------------------------------------------------------

    def row(self) -> list[Any]:
        """Return the snapshot row of a change that spreads; empty if none does."""
        if self._reached is None:
            return []
        return [self._reached, _rows(self._before), [] if self._current is self.rules else [_rows(self._current)]]

    def rows(self) -> list[Any]:
        """Return `rules` in the form of snapshots."""
        return _rows(self.rules)

    def load(self, rules: list[Rule], spreading: Sequence[Any]) -> None:
        """Load the rules of a snapshot, and the progress of a change: [name, previous rules, [rules that spread]]."""
        self.rules = self._current = rules
        if spreading:
            self._reached, self._before, current = spreading
            if current:
                (self._current,) = current


def _rows(rules: Iterable[Rule]) -> list[Any]:
    return [[rule.pattern, [list(pair) for pair in rule.properties]] for rule in rules]
