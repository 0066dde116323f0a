"""The rows on all systems, one system after the other for each row, so that ratios are from the same minutes.

Each measurement has new servers with new files, so that neither other servers nor earlier rows cost it anything.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median_low
from typing import Final

from tests.benchmarks.native.generator import GENERATOR_NAME, Load, LoadError, Run, run
from tests.benchmarks.native.rows import Operation, Protocol, Row, Via
from tests.benchmarks.native.servers import Servers
from tests.integration.cluster import wait_for

QUEUE: Final = "bench"
FILL_IN_FLIGHT: Final = 256
FILL_S: Final = 120.0
SETTLED_S: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The measurements to make.

    Attributes:
        queues: number of queues that the connections share.
        messages: messages in a queue before its consumption is measured, for each second of the measured time.
        calm: the part of one processor that other work may use during a measurement. One with more is repeated.
        tries: measurements after which the calmest one counts.
    """

    rows: Sequence[Row]
    seconds: float = 5.0
    warm_up: float = 1.0
    repeats: int = 1
    body: int = 100
    queues: int = 1
    messages: int = 20_000
    calm: float = 0.2
    tries: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """The part of a row about one system: the run with the median rate.

    Attributes:
        rates: the rates of all repeats.
        processor_us: microseconds of processor time for each operation, by process.
        leader: the process that led the first queue.
        elsewhere: the part of one processor that everything else on the machine used.
    """

    rate: float
    rates: Sequence[float]
    p50_ms: float
    p99_ms: float
    p999_ms: float
    operations: int
    processor_us: Mapping[str, float]
    leader: str
    elsewhere: float

    @property
    def generator_us(self) -> float:
        """Return the processor time of the generator for each operation."""
        return self.processor_us[GENERATOR_NAME]

    @property
    def leader_us(self) -> float:
        """Return the processor time of the leader for each operation."""
        return self.processor_us[self.leader]

    @property
    def front_ends_us(self) -> float:
        """Return the processor time of the leader's front ends for an operation."""
        return sum(spent for name, spent in self.processor_us.items() if name.startswith(f"{self.leader} front end"))

    @property
    def servers_us(self) -> float:
        """Return the processor time of all servers together for each operation."""
        return sum(self.processor_us.values()) - self.generator_us


Result = Mapping[Row, Mapping[str, Figure]]
"""The figures of the systems for each row; those of a failed row are missing."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One run and the leader during it."""

    run: Run
    leader: str


def measure(
    program: Path, systems: Sequence[Servers], plan: Plan, progress: Callable[[str], None]
) -> tuple[Result, Sequence[str]]:
    """Measure all rows on the systems. Return the figures, and a text about each row that failed on a system."""
    found: dict[Row, dict[str, list[Measured]]] = {row: {} for row in plan.rows}
    failures: list[str] = []
    for repeat in range(plan.repeats):
        for row in plan.rows:
            for system in systems:
                if not system.has(row):
                    continue
                progress(f"{repeat + 1}/{plan.repeats} {row}: {system.name}")
                try:
                    found[row].setdefault(system.name, []).append(_calmly(program, system, row, plan))
                except (LoadError, RuntimeError, TimeoutError) as exc:
                    failures.append(f"{row}: {system.name}: {exc}")
                    progress(failures[-1])
    figures = {
        row: {name: figure(several) for name, several in by_name.items() if several} for row, by_name in found.items()
    }
    return figures, failures


def _calmly(program: Path, system: Servers, row: Row, plan: Plan) -> Measured:
    """Measure until other work on the machine disturbs little, and return the calmest measurement."""
    calmest: Measured | None = None
    for _ in range(plan.tries):
        measured = measure_once(program, system, row, plan)
        if calmest is None or measured.run.elsewhere < calmest.run.elsewhere:
            calmest = measured
        if calmest.run.elsewhere <= plan.calm:
            break
    assert calmest is not None
    return calmest


def measure_once(program: Path, system: Servers, row: Row, plan: Plan) -> Measured:
    """Start the servers, measure a row and stop them.

    Raises:
        LoadError: an operation failed, or the queues do not hold what was acknowledged.
        RuntimeError, TimeoutError: the servers do not start or answer.
    """
    with contextlib.ExitStack() as stack:
        stack.callback(system.stop)
        system.start()
        queues = [f"{QUEUE}{number}" for number in range(plan.queues)]
        for queue in queues:
            system.create(queue, row)
        return _in_queues(program, system, row, plan, queues)


def _in_queues(program: Path, system: Servers, row: Row, plan: Plan, queues: Sequence[str]) -> Measured:
    filled = 0
    if row.operation is Operation.CONSUME:
        filled = sum(_fill(program, system, queue, plan) for queue in queues)
    leader = system.leader(queues[0])
    load = Load(
        protocol=system.protocols[row.protocol],
        operation="push" if row.operation is Operation.PUSH else "consume",
        targets=system.targets(row, queues),
        connections=row.connections,
        in_flight=row.in_flight,
        body=plan.body,
        seconds=plan.seconds,
        warm_up=plan.warm_up,
    )
    measured = run(program, load, system.processes())
    expected = filled - measured.all_operations if filled else measured.all_operations
    _check_stored(system, queues, expected)
    if expected and measured.empty:
        raise LoadError(f"{measured.empty} operations found no message, but {expected} are stored")
    if (now := system.leader(queues[0])) != leader:
        raise LoadError(f"the leader changed from {leader} to {now}")
    return Measured(measured, leader)


def _check_stored(system: Servers, queues: Sequence[str], expected: int) -> None:
    """Check the number of messages. JetStream removes acknowledged ones a little later.

    Raises:
        LoadError: it differs.
    """
    stored = -1

    def as_expected() -> bool:
        nonlocal stored
        stored = sum(system.stored(queue) for queue in queues)
        return stored == expected

    try:
        wait_for(as_expected, "the number of messages", SETTLED_S)
    except TimeoutError:
        raise LoadError(f"{stored} messages are stored, not {expected}") from None


def _fill(program: Path, system: Servers, queue: str, plan: Plan) -> int:
    """Push messages for consumption, over one connection to the leader; return their number."""
    row = Row(Operation.PUSH, Protocol.OWN, 1, FILL_IN_FLIGHT, Via.LEADER)
    load = Load(
        protocol=system.protocols[Protocol.OWN],
        operation="push",
        targets=system.targets(row, [queue]),
        connections=1,
        in_flight=FILL_IN_FLIGHT,
        body=plan.body,
        seconds=FILL_S,
        warm_up=0.0,
        operations=round(plan.messages * (plan.seconds + plan.warm_up)) // plan.queues,
    )
    return run(program, load, {}).all_operations


def figure(several: Sequence[Measured]) -> Figure:
    """Return the figure of a system from all repeats."""
    median = median_low(one.run.rate for one in several)
    chosen = next(one for one in several if one.run.rate == median)
    one = chosen.run
    return Figure(
        rate=one.rate,
        rates=[each.run.rate for each in several],
        p50_ms=one.p50_ms,
        p99_ms=one.p99_ms,
        p999_ms=one.p999_ms,
        operations=one.operations,
        processor_us={name: spent_s * 1e6 / one.operations for name, spent_s in one.processor_s.items()},
        leader=chosen.leader,
        elsewhere=one.elsewhere,
    )
