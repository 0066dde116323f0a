"""The result as a table for people, and as a document for programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from tests.benchmarks.machine import Machine
from tests.benchmarks.native.rows import Operation, Protocol, Row, Via
from tests.benchmarks.native.suite import Figure, Plan, Result

REFERENCE: Final = "lmqcluster"
HEADINGS: Final = ("per second", "p50 ms", "p99 ms", "p99.9 ms", "generator", "leader", "servers", "elsewhere", "ratio")
LEGEND: Final = """\
A row says how many connections there are, and how many operations each has in flight. Generator, leader and servers \
(all three together) are microseconds of processor time for each operation; elsewhere is the part of one processor that \
everything else on the machine used. The ratio is the rate of lmqcluster divided by this one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A finished run.

    Attributes:
        started: its start, ISO 8601.
        versions: what took part, by name.
        systems: description of each system by its name.
        failures: the rows without figures, and why.
    """

    started: str
    elapsed_s: float
    machine: Machine
    versions: Mapping[str, str]
    systems: Mapping[str, str]
    plan: Plan
    result: Result
    failures: Sequence[str]

    def print(self, console: Console) -> None:
        """Print the table with what is needed to read it."""
        versions = ", ".join(f"{name} {version}" for name, version in self.versions.items())
        systems = [f"{name}: {description}" for name, description in self.systems.items()]
        for line in (self.machine.line(), versions, *systems):
            console.print(line, markup=False, highlight=False)
        console.print(self.table())
        for line in (LEGEND, *self.failures):
            console.print(line, markup=False, highlight=False)

    def table(self) -> Table:
        """Return a line for each row and system."""
        plan = self.plan
        title = f"bodies of {plan.body} bytes, {plan.queues} queues, {plan.seconds:g} s, {plan.repeats} repeats"
        table = Table("row", "system", title=title, title_justify="left")
        for heading in HEADINGS:
            table.add_column(heading, justify="right")
        for row, figures in self.result.items():
            for place, (name, figure) in enumerate(figures.items()):
                table.add_row("" if place else str(row), name, *cells(figure, figures.get(REFERENCE)))
            table.add_section()
        return table

    def document(self) -> dict[str, Any]:
        """Return everything for programs."""
        return {
            "started": self.started,
            "elapsed_s": round(self.elapsed_s, 1),
            "machine": asdict(self.machine),
            "versions": dict(self.versions),
            "systems": dict(self.systems),
            "settings": {name: value for name, value in asdict(self.plan).items() if name != "rows"},
            "rows": [
                {**asdict(row), "figures": {name: figure_document(one) for name, one in figures.items()}}
                for row, figures in self.result.items()
            ],
            "failures": list(self.failures),
        }


def cells(figure: Figure, reference: Figure | None) -> Sequence[str]:
    """Return the cells of a figure under the headings."""
    times = [f"{time_ms:.2f}" for time_ms in (figure.p50_ms, figure.p99_ms, figure.p999_ms)]
    spent = [f"{spent_us:.1f}" for spent_us in (figure.generator_us, figure.leader_us, figure.servers_us)]
    ratio = "" if reference is None or reference is figure else f"{reference.rate / figure.rate:.2f}"
    return (f"{figure.rate:,.0f}", *times, *spent, f"{figure.elsewhere:.2f}", ratio)


def figure_document(figure: Figure) -> dict[str, Any]:
    """Return a figure for programs, with three digits after the point at most."""
    return {
        **asdict(figure),
        "rate": round(figure.rate, 1),
        "rates": [round(rate, 1) for rate in figure.rates],
        **{name: round(getattr(figure, name), 3) for name in ("p50_ms", "p99_ms", "p999_ms", "elsewhere")},
        "processor_us": {name: round(spent, 2) for name, spent in figure.processor_us.items()},
    }


def read_rows(document: Mapping[str, Any]) -> Result:
    """Return the rows of a document."""
    return {
        Row(
            Operation(one["operation"]),
            Protocol(one["protocol"]),
            one["connections"],
            one["in_flight"],
            Via(one["via"]),
        ): {name: Figure(**figure) for name, figure in one["figures"].items()}
        for one in document["rows"]
    }
