"""The statistics, the choice of cases and the table of the benchmark suite; nothing here is measured."""

from __future__ import annotations

import asyncio
import json
import re
from io import StringIO
from pathlib import Path
from types import ModuleType

import pytest
from rich.console import Console

from tests.benchmarks import jetstream, rabbitmq, scale_report
from tests.benchmarks.__main__ import chosen_systems
from tests.benchmarks.cases import SIZES, Case, Mode, Row, Via, matrix, parse_size, select, size_name
from tests.benchmarks.jetstream import JetStream
from tests.benchmarks.load import check_all_there, contents, windowed
from tests.benchmarks.machine import Machine
from tests.benchmarks.plots import draw
from tests.benchmarks.rabbitmq import RabbitMQ
from tests.benchmarks.report import Report, figure_text, ratio_text
from tests.benchmarks.rounds import Timing
from tests.benchmarks.statistics import Figure, Measurement, compare, figure_of, paired_ratio, percentile
from tests.benchmarks.suite import COUNT_MAX, FIRST_COUNTS, GROWTH_MAX, Outcome, Plan, count_for, rounds_of
from tests.benchmarks.system import LostMessagesError, System, Tally

PUSH = Row(Case(Mode.PIPELINED, Via.LEADER, 100), "push")
WAKE_UP = Row(Case(Mode.WAKE_UP, Via.ALL, 1000), "push to woken pull")


def rate(system: str, value: float, repeat: int = 0, row: Row = PUSH) -> Measurement:
    return Measurement(system=system, row=row, repeat=repeat, operations=10, rate=value)


def latency(system: str, p50_ms: float, p99_ms: float, repeat: int = 0) -> Measurement:
    return Measurement(system=system, row=WAKE_UP, repeat=repeat, operations=10, p50_ms=p50_ms, p99_ms=p99_ms)


@pytest.mark.parametrize(
    ("percent", "expected"),
    [(50, 50), (99, 99), (100, 100), (1, 1), (0.5, 1)],
)
def test_percentile_is_the_nearest_rank(percent: float, expected: int) -> None:
    assert percentile(list(range(100, 0, -1)), percent) == expected


def test_percentile_of_one_value_is_that_value() -> None:
    assert percentile([7.0], 50) == percentile([7.0], 99) == 7.0


@pytest.mark.parametrize(("values", "percent"), [([], 50), ([1.0], 0), ([1.0], 101)])
def test_percentile_refuses_invalid_arguments(values: list[float], percent: float) -> None:
    with pytest.raises(ValueError, match=r"percent"):
        percentile(values, percent)


def test_figure_is_the_median_of_the_repeats() -> None:
    figure = figure_of([rate("a", 300), rate("a", 100), rate("a", 110)])
    assert (figure.rate, figure.rate_range, figure.repeats, figure.operations) == (110, (100, 300), 3, 30)
    figure = figure_of([latency("a", 1, 5), latency("a", 2, 4), latency("a", 3, 9)])
    assert (figure.p50_ms, figure.p99_ms, figure.rate) == (2, 5, None)


def test_ratio_compares_only_results_of_the_same_repeat() -> None:
    # The machine was ten times slower in the second repeat: the ratio of medians would be 5.5, the true ratio is 2.
    ours = [rate("a", 2000, 0), rate("a", 200, 1), rate("a", 50, 2)]
    theirs = [rate("b", 100, 1), rate("b", 1000, 0)]
    assert paired_ratio(ours, theirs) == 2
    assert paired_ratio(ours, [rate("b", 1, 7)]) is None


def test_ratio_above_one_is_better_for_latencies_too() -> None:
    [comparison] = compare([latency("lmqcluster", 1, 9), latency("peer", 3, 3)], "lmqcluster")
    assert comparison.ratios == {"peer": 3}


def test_rows_without_the_reference_have_no_ratio() -> None:
    [comparison] = compare([rate("peer", 1), rate("other", 2)], "lmqcluster")
    assert set(comparison.figures) == {"peer", "other"}
    assert comparison.ratios == {}


def test_timing_becomes_a_rate_or_a_distribution() -> None:
    assert Timing(50, 2.0, 1.5).measurement("a", PUSH, 1) == Measurement(
        system="a", row=PUSH, repeat=1, operations=50, rate=25, client_load=0.75
    )
    measured = Timing(3, 2.0, 1.0, [1.0, 3.0, 2.0]).measurement("a", WAKE_UP, 0)
    assert (measured.p50_ms, measured.p99_ms, measured.rate) == (2, 3, None)


@pytest.mark.parametrize(
    ("text", "expected"), [("100", 100), ("100B", 100), ("1KB", 1000), ("64k", 64000), (" 2 kb ", 2000)]
)
def test_sizes_are_read_as_people_write_them(text: str, expected: int) -> None:
    assert parse_size(text) == expected


@pytest.mark.parametrize("text", ["", "B", "-1", "1MB", "0", "1.5KB"])
def test_other_sizes_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a size"):
        parse_size(text)


def test_size_names_and_sizes_agree() -> None:
    assert {size_name(size): size for size in SIZES.values()} == SIZES
    assert size_name(1500) == "1500B"


def test_small_messages_use_every_route_and_large_ones_the_leader() -> None:
    cases = list(matrix([100, 64000], full=False))
    assert {case.via for case in cases if case.size == 100} == set(Via)
    assert {case.via for case in cases if case.size == 64000} == {Via.LEADER}
    assert {case.mode for case in cases if case.size == 64000} == set(Mode)
    assert len(list(matrix([100, 64000], full=True))) == 2 * len(Mode) * len(Via)


def test_a_pattern_selects_cases_by_their_rows() -> None:
    cases = list(matrix([100], full=False))
    assert select(cases, None) == cases
    assert {case.mode for case in select(cases, "DONE_many")} == {Mode.BATCHED}
    assert select(cases, "^pipelined done, follower") == [Case(Mode.PIPELINED, Via.FOLLOWER, 100)]
    with pytest.raises(ValueError, match="no case matches"):
        select(cases, "nonsense")
    with pytest.raises(ValueError, match="not a regular expression"):
        select(cases, "(")


def test_systems_are_chosen_by_name() -> None:
    assert [kind.name for kind in chosen_systems("rabbitmq, JetStream")] == ["JetStream", "RabbitMQ"]
    with pytest.raises(ValueError, match="no system 'kafka'"):
        chosen_systems("kafka")


@pytest.mark.parametrize(("module", "kind"), [(jetstream, JetStream), (rabbitmq, RabbitMQ)])
def test_a_peer_that_is_not_installed_is_one_line_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch, module: ModuleType, kind: type[System]
) -> None:
    monkeypatch.setattr(module, "find_program", lambda _: None)
    reason = kind.missing()
    assert reason is not None
    assert reason.startswith(f"{kind.name} is left out: ")
    assert "apt-get install" in reason
    assert "\n" not in reason


def test_contents_are_distinct_and_of_the_size() -> None:
    made = contents(50, 64)
    assert len(set(made)) == 50
    assert {len(content) for content in made} == {64}


def test_every_message_is_accounted_for() -> None:
    sent = contents(5, 20)
    check_all_there(sent, reversed(sent), "x")
    with pytest.raises(LostMessagesError, match="received 4: 1 missing, 0 doubled"):
        check_all_there(sent, sent[1:], "x")
    with pytest.raises(LostMessagesError, match="received 6: 0 missing, 1 doubled"):
        check_all_there(sent, [*sent, sent[0]], "x")
    with pytest.raises(LostMessagesError, match="received 5: 1 missing, 0 doubled"):
        check_all_there(sent, [*sent[1:], b"changed"], "x")


def test_the_window_is_kept_and_nothing_is_done_twice() -> None:
    most = 0
    outstanding = 0

    async def operation(number: int) -> int:
        nonlocal outstanding, most
        outstanding += 1
        most = max(most, outstanding)
        await asyncio.sleep(0)
        outstanding -= 1
        return number

    shared = iter(range(100))
    results = asyncio.run(windowed([map(operation, shared), map(operation, shared)], 4))
    assert most == 8
    assert sorted(results[0] + results[1]) == list(range(100))
    assert all(results)


def test_a_failure_within_the_window_is_raised_unchanged() -> None:
    async def operation(number: int) -> int:
        raise ConnectionError(f"lost at {number}")

    with pytest.raises(ConnectionError, match="lost at"):
        asyncio.run(windowed([map(operation, iter(range(100)))], 8))


def test_a_tally_is_complete_when_every_claim_is_met() -> None:
    tally = Tally(5)
    assert [tally.reserve(3), tally.reserve(3), tally.reserve()] == [3, 2, 0]
    tally.give_back(1)
    assert tally.reserve(9) == 1
    for number in range(5):
        assert not tally.complete.is_set()
        tally.add(b"%d" % number)
    assert tally.complete.is_set()


class _Idle(System):
    modes = frozenset({Mode.PIPELINED, Mode.WAKE_UP})
    note = ""

    def __init__(self, name: str, modes: frozenset[Mode] = modes) -> None:
        self.name = name  # type: ignore[misc]
        self.modes = modes  # type: ignore[misc]

    async def start(self) -> None:
        raise NotImplementedError

    async def stop(self) -> None:
        raise NotImplementedError

    def version(self) -> str:
        raise NotImplementedError

    def durability(self) -> str:
        raise NotImplementedError

    def queue(self, name: str, case: Case) -> object:
        raise NotImplementedError


def test_systems_run_side_by_side_and_none_is_always_first() -> None:
    systems = [_Idle("a"), _Idle("b"), _Idle("c", frozenset({Mode.WAKE_UP}))]
    plan = Plan(cases=[PUSH.case, WAKE_UP.case], repeats=2, phase_s=1)
    order = [(repeat, case.mode, system.name) for repeat, case, system in rounds_of(plan, systems)]
    pipelined, wake_up = Mode.PIPELINED, Mode.WAKE_UP
    assert order == [
        *[(0, pipelined, name) for name in "ab"],
        *[(0, wake_up, name) for name in "abc"],
        *[(1, pipelined, name) for name in "ba"],
        *[(1, wake_up, name) for name in "bca"],
    ]


def test_counts_follow_the_speed_within_limits() -> None:
    case = PUSH.case
    timings = [Timing(1000, 0.1, 0.1), Timing(1000, 0.3, 0.1)]
    assert count_for(timings, 1.0, case, 1000) == 5000
    assert count_for([Timing(1000, 0.0001, 0.0)], 1.0, case, 1000) == 1000 * GROWTH_MAX
    assert count_for([Timing(1000, 0.0001, 0.0)], 1.0, case, 100_000) == COUNT_MAX
    assert count_for([Timing(1000, 1000.0, 0.0)], 1.0, case, 1000) == FIRST_COUNTS[Mode.PIPELINED]
    assert count_for([Timing(1000, 0.001, 0.0)], 1.0, Case(Mode.PIPELINED, Via.LEADER, 64_000), 1000) == 500


def report(*measurements: Measurement) -> Report:
    names = list(dict.fromkeys(each.system for each in measurements))
    return Report(
        plan=Plan(cases=[PUSH.case, WAKE_UP.case], repeats=1, phase_s=0.5),
        machine=Machine(
            cores=2,
            processor="Z80",
            memory_gb=1,
            system="CP/M",
            python="3.11",
            event_loop="asyncio",
            load_average_before=0.5,
        ),
        outcome=Outcome(list(measurements), dict.fromkeys(names, "1.0"), dict.fromkeys(names, "in memory")),
        reference="lmqcluster",
        notes=["RabbitMQ is left out"],
        started="2024-01-01T00:00:00+00:00",
        elapsed_s=12,
    )


def shown(of: Report) -> str:
    out = StringIO()
    of.print(Console(file=out, width=150))
    return out.getvalue()


def test_the_table_has_figures_and_ratios() -> None:
    text = shown(report(latency("lmqcluster", 0.5, 1.25), rate("lmqcluster", 120_000), rate("JetStream", 10_000)))
    lines = [[cell.strip() for cell in line.split("│")[1:-1]] for line in text.splitlines() if line.startswith("│")]
    assert lines == [
        ["pipelined", "push", "leader", "100B", "120,000", "10,000", "12.0x"],
        ["end to end", "push to woken pull", "all nodes", "1KB", "0.50 / 1.25", "-", "-"],
    ]
    assert "vs JetStream" in text
    assert "2 cores (Z80), 1 GB" in text
    assert "RabbitMQ is left out" in text


def test_the_table_of_peers_alone_has_no_ratios() -> None:
    assert "vs " not in shown(report(rate("JetStream", 10_000), rate("RabbitMQ", 5_000)))


def test_cells_show_no_more_than_is_known() -> None:
    assert figure_text(None) == "-"
    assert figure_text(Figure(1, 1, rate=1234.5)) == "1,234"
    assert [ratio_text(ratio) for ratio in (None, 0.456, 9.99, 21.34)] == ["-", "0.46x", "9.99x", "21.3x"]


def test_the_document_is_json_with_all_measurements() -> None:
    document = json.loads(
        json.dumps(
            report(rate("lmqcluster", 120_000), rate("JetStream", 10_000), latency("lmqcluster", 1, 2)).document()
        )
    )
    assert document["rows"][0]["ratios"] == {"JetStream": 12}
    assert document["rows"][0]["figures"]["lmqcluster"]["rate"] == 120_000
    assert document["rows"][1]["figures"]["lmqcluster"] == {"repeats": 1, "operations": 10, "p50_ms": 1, "p99_ms": 2}
    assert document["systems"]["JetStream"] == {"version": "1.0", "durability": "in memory"}
    assert len(document["measurements"]) == 3
    assert document["measurements"][0] == {
        "mode": "pipelined",
        "operation": "push",
        "through": "leader",
        "size_bytes": 100,
        "system": "lmqcluster",
        "repeat": 0,
        "operations": 10,
        "rate": 120_000,
    }


PLOTS = Path(__file__).resolve().parents[3] / "docs" / "plots"


def test_the_plots_of_the_documentation_show_the_result_beside_them(tmp_path: Path) -> None:
    result = json.loads((PLOTS / "benchmarks.json").read_text(encoding="utf-8"))
    by_system = draw(result, tmp_path)
    by_depth = scale_report.Report.read(PLOTS / "scale.json").draw(tmp_path)
    assert {path.name for path in (*by_system, *by_depth)} == {path.name for path in PLOTS.glob("*.svg")}
    for path in by_depth:
        assert _curves(path) == _curves(PLOTS / path.name)
    for path in by_system:
        kept = (PLOTS / path.name).read_text(encoding="utf-8")
        mode = path.stem.replace("-", " ")
        figures = [figure for row in result["rows"] if row["mode"] == mode for figure in row["figures"].values()]
        assert len(figures) >= 9
        for figure in figures:
            text = f"{figure['p50_ms']:,.2f}" if "p50_ms" in figure else f"{figure['rate']:,.0f}"
            assert f">{text}<" in path.read_text(encoding="utf-8")
            assert f">{text}<" in kept


def _curves(path: Path) -> list[list[int]]:
    """Return the points of the lines and markers of a plot, to the pixel."""
    svg = path.read_text(encoding="utf-8")
    curves = [shape for shape in re.findall(r'<path d="([^"]*)" clip-path', svg) if shape.count("L") >= 3]
    assert curves
    return [[round(float(number)) for number in re.findall(r"[\d.]+", curve)] for curve in curves]
