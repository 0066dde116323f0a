"""The rows, the parsing and the figures of the benchmark with a load generator in Go; nothing here is measured."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from tests.benchmarks.machine import Machine
from tests.benchmarks.native import pages, programs
from tests.benchmarks.native.__main__ import SYSTEMS, chosen, main, node_options, parser
from tests.benchmarks.native.generator import Load, LoadError, Run, parse, run
from tests.benchmarks.native.report import Report, read_rows
from tests.benchmarks.native.rows import ROWS, Operation, Protocol, Row, Via, parse_load, select
from tests.benchmarks.native.servers import Servers, Settings
from tests.benchmarks.native.suite import Figure, Measured, Plan, figure, measure
from tests.benchmarks.processes import find_program
from tests.benchmarks.processor import machine_seconds, process_seconds

PUSH = Row(Operation.PUSH, Protocol.OWN, 64, 1, Via.ALL)
LINE = {
    "operations": 10,
    "all_operations": 12,
    "empty": 0,
    "seconds": 2.0,
    "p50_us": 1500,
    "p99_us": 2500,
    "p999_us": 3000,
}


def one_run(rate: float = 10, operations: int = 20, elsewhere: float = 0.1) -> Run:
    return Run(
        operations=operations,
        all_operations=operations,
        empty=0,
        seconds=operations / rate,
        p50_ms=1,
        p99_ms=2,
        p999_ms=3,
        processor_s={"generator": 1e-5, "n1": 4e-5, "n2": 2e-5},
        elsewhere=elsewhere,
    )


def test_the_result_of_the_generator_is_parsed() -> None:
    found = parse(json.dumps(LINE) + "\n", {"generator": 0.5}, 0.25)
    assert (found.rate, found.p50_ms, found.p99_ms, found.p999_ms) == (5, 1.5, 2.5, 3)
    assert (found.processor_s, found.elsewhere, found.all_operations) == ({"generator": 0.5}, 0.25, 12)


def test_a_run_without_operations_has_no_figures() -> None:
    with pytest.raises(LoadError, match="12 in all"):
        parse(json.dumps({**LINE, "operations": 0}), {}, 0)


def test_rows_are_distinct_and_selected_by_their_text() -> None:
    assert len({str(row) for row in ROWS}) == len(ROWS)
    assert str(PUSH) == "push, 64 x 1, all nodes"
    assert select(r"^push, 64 x 1, all") == [PUSH]
    assert [str(row) for row in select("HTTPS.*64.*leader")] == ["HTTPS push, 64 x 1, leader"]
    assert list(select(None)) == list(ROWS)
    for pattern in ("nothing", "("):
        with pytest.raises(ValueError, match=r"match|regular expression"):
            select(pattern)


def test_a_row_can_be_given() -> None:
    assert parse_load("push/own/64/1/all") == PUSH
    assert parse_load("consume/http/1/8/leader") == Row(Operation.CONSUME, Protocol.HTTP, 1, 8, Via.LEADER)


@pytest.mark.parametrize("text", ["", "push/own/64/1", "push/own/0/1/all", "pull/own/1/1/all", "push/own/1/x/all"])
def test_other_texts_are_no_rows(text: str) -> None:
    with pytest.raises(ValueError, match="is not OPERATION"):
        parse_load(text)


def test_options_of_nodes_are_passed_on() -> None:
    given = parser().parse_args(["--node-option", "a=b=c", "--front-ends", "2"])
    assert node_options(given) == {"a": "b=c", "front_ends": "2"}
    with pytest.raises(ValueError, match="'a' is not NAME=VALUE"):
        node_options(parser().parse_args(["--node-option", "a"]))


def test_only_systems_with_a_row_are_started() -> None:
    plan = Plan(rows=[PUSH])
    names = ["lmqcluster", "lmqcluster, front ends", "JetStream, synced", "JetStream"]
    assert [kind.name for kind in chosen(",".join(SYSTEMS), plan)] == names
    with pytest.raises(ValueError, match="no system redis"):
        chosen("redis", plan)
    assert main(["--systems", "redis"]) == main(["--only", "nothing"]) == 2


def test_the_figure_is_the_run_with_the_median_rate() -> None:
    found = figure([Measured(one_run(rate), "n1") for rate in (30, 10, 20)])
    assert (found.rate, found.rates, found.operations) == (20, [30, 10, 20], 20)
    assert found.processor_us == pytest.approx({"generator": 0.5, "n1": 2, "n2": 1})
    assert (found.generator_us, found.leader_us, found.servers_us) == pytest.approx((0.5, 2, 3))


def test_the_stored_result_has_all_rows_of_all_systems() -> None:
    document = json.loads(pages.RESULT.read_text(encoding="utf-8"))
    expected = {row: {kind.name for kind in SYSTEMS.values() if kind(Settings()).has(row)} for row in ROWS}
    assert {row: set(figures) for row, figures in read_rows(document).items()} == expected
    assert "dirty" not in document["versions"]["lmqcluster"]


@pytest.mark.parametrize("page", pages.PAGES, ids=lambda page: page.name)
def test_a_page_has_the_tables_of_the_stored_result(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert text == pages.filled(text, pages.blocks(json.loads(pages.RESULT.read_text(encoding="utf-8"))))


def report_of(*figures: Mapping[str, Figure]) -> Report:
    rows = [PUSH, Row(Operation.PUSH, Protocol.HTTPS, 1, 1, Via.LEADER)]
    return Report(
        started="2026-11-27T10:00:00+00:00",
        elapsed_s=1,
        machine=Machine.here("none"),
        versions={
            "lmqcluster": "abc",
            "nats-server": "2.15.3",
            "nats.go": "1",
            "Go": "2",
            "Python": "3",
            "kernel": "4",
        },
        systems={"lmqcluster": "disk"},
        plan=Plan(rows=rows, seconds=2.5, repeats=3),
        result=dict(zip(rows, figures, strict=False)),
        failures=["one failed"],
    )


def test_tables_have_a_column_for_each_system_and_version() -> None:
    ours = figure([Measured(one_run(123_456), "n1")])
    theirs = figure([Measured(one_run(99.4), "n1")])
    texts = pages.blocks(report_of({"lmqcluster": ours, "JetStream": theirs}, {"lmqcluster, TLS": ours}).document())
    assert texts["rates"] == (
        "| Per second | lmqcluster | lmqcluster, 2 front ends | JetStream 2.15.3, synced | JetStream 2.15.3 |\n"
        "|---|---|---|---|---|\n"
        "| push, 64 connections, one at a time, all nodes | 123,000 | - | - | 99 |\n"
        "| HTTPS push, 1 connection, one at a time, leader | 123,000 | - | - | - |\n"
    )
    assert "| 1.00 / 2.00 / 3.00 | - | - | 1.00 / 2.00 / 3.00 |" in texts["latencies"]
    assert "| 2.0 / 3.0 / 0.5 | - | - | 2.0 / 3.0 / 0.5 |" in texts["processor"]
    assert "commit abc" in texts["versions"]
    assert "2.5 seconds a row, the median of 3 repeats, 100 bytes, one queue" in texts["versions"]
    assert texts["summary"].count("| - | - | - | - |") == len(pages.SUMMARY) + 1


def relayed(rate: float, **processor_us: float) -> Figure:
    one = figure([Measured(one_run(rate), "n1")])
    names = {name.replace("_", " "): spent for name, spent in processor_us.items()}
    return replace(one, processor_us={"generator": 1.0, **names})


def test_sizes_follow_from_the_scarcest_of_process_front_ends_and_cores() -> None:
    row = Row(Operation.PUSH, Protocol.OWN, 256, 1, Via.LEADER)
    one = relayed(1, n1=40.0, n2=10.0)
    two = relayed(1, n1=10.0, n1_front_end_1=20.0, n1_front_end_2=20.0, n2=10.0)
    assert pages.sized(row, 4, {"lmqcluster": one}) == pytest.approx((20_000, 0))
    found = {"lmqcluster": one, "lmqcluster, front ends": two}
    assert pages.sized(row, 2, found) == pytest.approx((20_000, 0))
    assert pages.sized(row, 4, found) == pytest.approx((60_000, 3))
    assert pages.sized(row, 8, found) == pages.sized(row, 16, found) == pytest.approx((80_000, 4))


def test_a_result_survives_its_document() -> None:
    ours = figure([Measured(one_run(20), "n1")])
    document = json.loads(json.dumps(report_of({"lmqcluster": ours}, {}).document()))
    assert read_rows(document)[PUSH] == {"lmqcluster": ours}
    assert document["settings"]["repeats"] == 3


def test_the_printed_table_has_ratios_and_failures() -> None:
    output = StringIO()
    fast, slow = (figure([Measured(one_run(rate), "n1")]) for rate in (30, 20))
    report_of({"lmqcluster": fast, "JetStream": slow}).print(Console(file=output, width=180))
    assert "1.50" in output.getvalue()
    assert "one failed" in output.getvalue()


@pytest.mark.parametrize("page", ["no place", "<!-- benchmarks:other -->\n<!-- /benchmarks:other -->"])
def test_a_page_without_a_known_place_is_refused(page: str) -> None:
    with pytest.raises(pages.StalePageError, match="there are rates"):
        pages.filled(page, {"rates": ""})


def test_a_page_gets_its_texts() -> None:
    page = "a\n<!-- benchmarks:b -->\n\nold\n\n<!-- /benchmarks:b -->\nc\n"
    assert pages.filled(page, {"b": "new\n"}) == page.replace("old", "new")


class FakeServers(Servers):
    """Holds as many messages as the test says."""

    name = "fake"
    protocols = {Protocol.OWN: "rpc"}  # noqa: RUF012

    def __init__(self, stored: int) -> None:
        super().__init__(Settings())
        self.messages = stored
        self.calls: list[str] = []

    def start(self) -> None:
        self.calls.append("start")

    def stop(self) -> None:
        self.calls.append("stop")

    def description(self) -> str:
        return "fake"

    def processes(self) -> Mapping[str, int]:
        return {"n1": 1, "n2": 2, "n3": 3}

    def leader(self, queue: str) -> str:
        return {"a": "n2", "b": "n3"}.get(queue, "n1")

    def address(self, server: str, protocol: Protocol) -> str:
        return f"{server}:1"

    def create(self, queue: str, row: Row) -> None:
        self.calls.append(f"create {queue}")

    def stored(self, queue: str) -> int:
        return self.messages


def test_connections_take_nodes_and_queues_in_turn() -> None:
    servers = FakeServers(0)
    assert servers.targets(PUSH, ["a"]) == [("n2:1", "a"), ("n3:1", "a"), ("n1:1", "a")]
    leaders = Row(Operation.PUSH, Protocol.OWN, 1, 1, Via.LEADER)
    assert servers.targets(leaders, ["a", "b"]) == [("n2:1", "a"), ("n3:1", "b")]
    both = servers.targets(PUSH, ["a", "b"])
    assert {queue: {address for address, its in both if its == queue} for _, queue in both} == {
        "a": {"n1:1", "n2:1", "n3:1"},
        "b": {"n1:1", "n2:1", "n3:1"},
    }


def test_a_row_has_figures_only_if_everything_acknowledged_is_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.benchmarks.native.suite.run", lambda *_: one_run(operations=20))
    monkeypatch.setattr("tests.benchmarks.native.suite.SETTLED_S", 0)
    good, bad = FakeServers(20), FakeServers(19)
    plan = Plan(rows=[PUSH])
    figures, failures = measure(Path(), [good], plan, print)
    assert [isinstance(one, Figure) for one in figures[PUSH].values()] == [True]
    assert failures == []
    figures, failures = measure(Path(), [bad], plan, print)
    assert (figures, failures) == ({PUSH: {}}, [f"{PUSH}: fake: 19 messages are stored, not 20"])
    assert good.calls == bad.calls == ["start", "create bench0", "stop"]


def test_a_disturbed_measurement_is_repeated_and_the_calmest_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = iter([0.9, 0.5, 0.7, 0.6, 0.1, 0.0])
    monkeypatch.setattr("tests.benchmarks.native.suite.run", lambda *_: one_run(elsewhere=next(parts)))
    found = [
        measure(Path(), [FakeServers(20)], Plan(rows=[PUSH], tries=3), print)[0][PUSH]["fake"].elsewhere for _ in "ab"
    ]
    assert found == [0.5, 0.1]


def test_processor_time_is_that_of_a_process_and_of_its_ended_children() -> None:
    script = "sh -c 'i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done'; exec sleep 60"
    with subprocess.Popen(["sh", "-c", script], start_new_session=True) as process:
        try:
            before = machine_seconds()
            while process_seconds([process.pid])[0] < 0.02:
                assert process.poll() is None
            assert machine_seconds() > before
        finally:
            os.killpg(process.pid, signal.SIGKILL)
    assert process_seconds([process.pid]) == [0]


@pytest.fixture(scope="module")
def go() -> str:
    found = find_program("go")
    if found is None:
        pytest.skip("Go is not installed")
    return found


def test_the_generator_passes_its_own_tests(go: str) -> None:
    done = subprocess.run([go, "test", "."], cwd=programs.GENERATOR, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_generator_reports_what_it_cannot_reach(go: str, tmp_path: Path) -> None:
    load = Load(
        protocol="rpc", operation="push", targets=[("127.0.0.1:1", "q")], connections=1, in_flight=1, body=1, seconds=1
    )
    with pytest.raises(LoadError, match=r"connecting to 127\.0\.0\.1:1"):
        run(programs.build_generator(tmp_path), load, {})
    assert programs.go_version().count(".") == 2
    assert programs.nats_go_version() >= "1"
