"""The clock of schedules: an offset to log time on which the clocks of a majority of the members agree.

A leader whose own clock is wrong by hours moves no due time, and neither does one whose clock is set while it leads. If
no majority agrees, for example because two of three clocks are wrong, the offset stays as it is, and time goes on with
log time.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

__all__ = ["STEP_US", "TOLERANCE_US", "agreed_ahead"]

TOLERANCE_US: Final = 1_000_000
"""Clocks that differ by at most this agree."""
STEP_US: Final = 250_000
"""A change of an offset by less is not reported or followed."""


def agreed_ahead(reports: Mapping[str, int], members: Collection[str], own_id: str, own_us: int) -> int | None:
    """Return the offset on which a majority of the members agree, None if none does.

    Args:
        reports: by how much the clock of each member is ahead of log time, as it has reported.
        own_id: the leader; its own clock decides within the tolerance.
        own_us: its own offset.
    """
    offsets = sorted([own_us, *(reports[one] for one in members if one != own_id and one in reports)])
    needed = len(members) // 2 + 1
    runs = [offsets[first : first + needed] for first in range(len(offsets) - needed + 1)]
    agreeing = [run for run in runs if run[-1] - run[0] <= TOLERANCE_US]
    if not agreeing or own_id not in members:
        return None
    closest = min(agreeing, key=lambda run: run[-1] - run[0])
    own = any(run[0] <= own_us <= run[-1] for run in agreeing)
    return own_us if own else closest[len(closest) // 2]
