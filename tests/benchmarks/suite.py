"""The run: all systems are up at once, and run every case one right after the other, repeatedly.

Interleaving makes the drift of a shared machine hit all systems alike; the order rotates from repeat to repeat so that
none is always first. Servers that are not being measured stay up but idle.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from .cases import BATCH, BATCHES_IN_FLIGHT, IN_FLIGHT, Case, Mode, Via
from .load import first_error_group
from .rounds import Timing, run_round
from .statistics import Measurement
from .system import System

BYTES_OF_A_ROUND_MAX: Final = 32_000_000
"""Maximum bytes of the contents of one round, which the memory of a laptop holds easily for client and three nodes."""
COUNT_MAX: Final = 200_000
GROWTH_MAX: Final = 10
"""Maximum growth of a round over the round it is derived from: short rounds predict long ones poorly."""

FIRST_COUNTS: Final[dict[Mode, int]] = {
    Mode.PIPELINED: 2 * IN_FLIGHT,
    Mode.CONSUME: 2 * IN_FLIGHT,
    Mode.BATCHED: BATCH * BATCHES_IN_FLIGHT,
    Mode.ONE_AT_A_TIME: 50,
    Mode.WAKE_UP: 50,
    Mode.HTTP: IN_FLIGHT,
    Mode.HTTP_BATCHED: BATCH * BATCHES_IN_FLIGHT,
}
"""Messages of the first warm-up if they are not too large, and the minimum of a round."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The duration and number of rounds."""

    cases: Sequence[Case]
    repeats: int
    phase_s: float
    """Target for the time of one timed operation of one round, in seconds."""
    warm_ups: int = 2
    """Unrecorded rounds of every system, mode and size, at least one: they determine the message count of a
    recorded one.
    """


@dataclass(slots=True)
class Outcome:
    """The results of a run."""

    measurements: list[Measurement] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)
    durabilities: dict[str, str] = field(default_factory=dict)


def rounds_of(plan: Plan, systems: Sequence[System]) -> Iterator[tuple[int, Case, System]]:
    """Return every round of the plan in the order of running: repeat by repeat, case by case, the systems
    side by side.
    """
    for repeat in range(plan.repeats):
        first = repeat % len(systems) if systems else 0
        rotated = [*systems[first:], *systems[:first]]
        for case in plan.cases:
            for system in rotated:
                if case.mode in system.modes:
                    yield repeat, case, system


def first_count(case: Case) -> int:
    """Return the messages of the first warm-up, which is also the minimum of a round."""
    return min(FIRST_COUNTS[case.mode], _count_max(case))


def count_for(timings: Sequence[Timing], phase_s: float, case: Case, previous: int) -> int:
    """Return the messages that a round needs so that its timed operations take about `phase_s` each, based on an
    earlier round.
    """
    elapsed_s = sum(timing.elapsed_s for timing in timings)
    wanted = int(previous * phase_s * len(timings) / elapsed_s)
    return max(min(wanted, GROWTH_MAX * previous, _count_max(case)), first_count(case))


def _count_max(case: Case) -> int:
    return min(COUNT_MAX, BYTES_OF_A_ROUND_MAX // case.size)


async def run(plan: Plan, systems: Sequence[System], progress: Callable[[str], None]) -> Outcome:
    """Start the systems, run the plan, stop the systems.

    Args:
        plan: the plan to run.
        systems: the installed systems.
        progress: called with a line of text before every round, and while systems start.

    Raises:
        LostMessagesError: a system lost, duplicated or changed messages.
        TimeoutError: a system did not become ready, or hung.
    """
    outcome = Outcome()
    counts: dict[tuple[str, Mode, int], int] = {}
    async with contextlib.AsyncExitStack() as stack:
        progress(f"starting {', '.join(system.name for system in systems)}")
        for system in systems:
            stack.push_async_callback(system.stop)
        async with first_error_group() as group:
            for system in systems:
                group.create_task(system.start())
        for system in systems:
            outcome.versions[system.name] = system.version()
            outcome.durabilities[system.name] = system.durability()
        for repeat, case, system in rounds_of(plan, systems):
            key = (system.name, case.mode, case.size)
            if key not in counts:
                progress(f"warming up {system.name}: {case.mode}")
                counts[key] = await _warm_up(system, case, plan)
            progress(f"repeat {repeat + 1} of {plan.repeats}: {case}: {system.name}")
            timings = await run_round(system, case, counts[key])
            outcome.measurements += [timing.measurement(system.name, row, repeat) for row, timing in timings.items()]
    return outcome


async def _warm_up(system: System, case: Case, plan: Plan) -> int:
    """Run unrecorded rounds. Return the message count for recorded rounds of this kind."""
    through_leader = Case(case.mode, Via.LEADER, case.size)
    count = first_count(case)
    for _ in range(plan.warm_ups):
        timings = await run_round(system, through_leader, count)
        count = count_for(list(timings.values()), plan.phase_s, case, count)
    return count
