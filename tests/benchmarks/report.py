"""The result as a table for people, and as JSON for programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from .cases import BATCH, BATCHES_IN_FLIGHT, HTTP_CONNECTIONS, IN_FLIGHT, size_name
from .machine import Machine
from .statistics import Comparison, Figure, compare
from .suite import Outcome, Plan

NOTHING: Final = "-"
WIDTH_OF_A_FILE: Final = 150
"""Width of the table if the output is not a terminal."""
NODES: Final = 3

LEGEND: Final = f"""\
All systems: {NODES} servers and this client process on one machine, asyncio clients. Figures are medians of the repeats, \
ratios are medians of the ratios within each repeat; above 1 lmqcluster is better: more a second, or a lower p50.
pipelined: single operations, {IN_FLIGHT} in flight on one connection ("all nodes": on each of {NODES} connections).
consume: every message pulled and answered by itself, in the way that suits the system, at most about {IN_FLIGHT} unanswered.
batched: {BATCH} messages a request, {BATCHES_IN_FLIGHT} requests in flight.
one at a time: p50 / p99 of one request.
end to end: p50 / p99 from a push to the return of the pull that waited for it ("all nodes": at another node).
HTTP: {HTTP_CONNECTIONS} keep-alive connections to a node (batched: {BATCHES_IN_FLIGHT}), each with one request outstanding, \
over bare sockets: an HTTP client library would be slower than the server."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A finished run, ready to be shown."""

    plan: Plan
    machine: Machine
    outcome: Outcome
    reference: str
    """The system that the others are compared with."""
    notes: Sequence[str]
    """Paragraphs below the table: omissions, and the mapping of operations."""
    started: str
    """Start time, ISO 8601."""
    elapsed_s: float

    def comparisons(self) -> list[Comparison]:
        """Return the rows of the table, in the order of the plan."""
        order = {row: place for place, row in enumerate(row for case in self.plan.cases for row in case.rows())}
        return sorted(compare(self.outcome.measurements, self.reference), key=lambda each: order[each.row])

    def print(self, console: Console) -> None:
        """Print the table with the explanations needed to read it."""
        console.print(self.machine.line(), markup=False, highlight=False)
        for system, version in self.outcome.versions.items():
            durability = self.outcome.durabilities[system]
            console.print(f"{system} {version}: {NODES} nodes, {durability}", markup=False, highlight=False)
        console.print(self.table())
        for text in (LEGEND, *self.notes):
            console.print(text, markup=False, highlight=False)
        console.print(f"{self.plan.repeats} repeats, {self.elapsed_s:.0f} s in all", markup=False, highlight=False)

    def table(self) -> Table:
        """Return the rows of cases, columns of systems, and ratios."""
        systems = list(self.outcome.versions)
        peers = [system for system in systems if system != self.reference]
        table = Table(title="messages a second, or p50 / p99 in milliseconds", title_justify="left")
        for heading in ("mode", "operation", "through", "size"):
            table.add_column(heading)
        for system in systems:
            table.add_column(system, justify="right")
        for peer in peers if self.reference in systems else ():
            table.add_column(f"vs {peer}", justify="right")
        previous = None
        for comparison in self.comparisons():
            case = comparison.row.case
            if previous is not None and (case.mode, case.size) != (previous.mode, previous.size):
                table.add_section()
            previous = case
            figures = [figure_text(comparison.figures.get(system)) for system in systems]
            ratios = [ratio_text(comparison.ratios.get(peer)) for peer in peers] if self.reference in systems else []
            table.add_row(case.mode, comparison.row.operation, case.via, size_name(case.size), *figures, *ratios)
        return table

    def document(self) -> dict[str, Any]:
        """Return the result for programs, with the single measurements."""
        outcome = self.outcome
        return {
            "started": self.started,
            "elapsed_s": round(self.elapsed_s, 1),
            "machine": asdict(self.machine),
            "settings": {
                "nodes": NODES,
                "repeats": self.plan.repeats,
                "phase_s": self.plan.phase_s,
                "in_flight": IN_FLIGHT,
                "batch": BATCH,
                "batches_in_flight": BATCHES_IN_FLIGHT,
                "http_connections": HTTP_CONNECTIONS,
            },
            "systems": {
                name: {"version": version, "durability": outcome.durabilities[name]}
                for name, version in outcome.versions.items()
            },
            "notes": list(self.notes),
            "reference": self.reference,
            "rows": [_row_document(comparison) for comparison in self.comparisons()],
            "measurements": [
                {**_row_key(each.row.case, each.row.operation), **_rest_of(asdict(each), "row")}
                for each in outcome.measurements
            ],
        }


def figure_text(figure: Figure | None) -> str:
    """Return the text of a cell: a rate, two latencies, or nothing."""
    if figure is None:
        return NOTHING
    if figure.rate is not None:
        return f"{figure.rate:,.0f}"
    return f"{figure.p50_ms:.2f} / {figure.p99_ms:.2f}"


def ratio_text(ratio: float | None) -> str:
    """Return a ratio with its significant digits."""
    if ratio is None:
        return NOTHING
    return f"{ratio:.1f}x" if ratio >= 10 else f"{ratio:.2f}x"


def _row_key(case: Any, operation: str) -> dict[str, Any]:
    return {"mode": str(case.mode), "operation": operation, "through": str(case.via), "size_bytes": case.size}


def _rest_of(record: Mapping[str, Any], *without: str) -> dict[str, Any]:
    return {key: value for key, value in record.items() if key not in without and value is not None}


def _row_document(comparison: Comparison) -> dict[str, Any]:
    return {
        **_row_key(comparison.row.case, comparison.row.operation),
        "figures": {system: _rest_of(asdict(figure)) for system, figure in comparison.figures.items()},
        "ratios": {peer: round(ratio, 3) for peer, ratio in comparison.ratios.items()},
    }
