"""The rows, the parsing and the figures of the benchmark with a load generator in Go; nothing here is measured."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.benchmarks.native import programs
from tests.benchmarks.native.__main__ import SYSTEMS, chosen, main, node_options, parser
from tests.benchmarks.native.generator import Load, LoadError, Run, parse, run
from tests.benchmarks.native.rows import ROWS, Operation, Protocol, Row, Via, parse_load, select
from tests.benchmarks.native.servers import Servers, Settings
from tests.benchmarks.native.suite import Figure, Measured, Plan, figure, measure
from tests.benchmarks.processes import find_program
from tests.benchmarks.processor import machine_seconds, tree_seconds

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


def one_run(rate: float = 10, operations: int = 20) -> Run:
    return Run(
        operations=operations,
        all_operations=operations,
        empty=0,
        seconds=operations / rate,
        p50_ms=1,
        p99_ms=2,
        p999_ms=3,
        processor_s={"generator": 1e-5, "n1": 4e-5, "n2": 2e-5},
        elsewhere=0.1,
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
    assert [str(row) for row in select("HTTPS.*leader")] == ["HTTPS push, 64 x 1, leader"]
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
    assert [kind.name for kind in chosen(",".join(SYSTEMS), plan)] == ["lmqcluster", "JetStream, synced", "JetStream"]
    with pytest.raises(ValueError, match="no system redis"):
        chosen("redis", plan)
    assert main(["--systems", "redis"]) == main(["--only", "nothing"]) == 2


def test_the_figure_is_the_run_with_the_median_rate() -> None:
    found = figure([Measured(one_run(rate), "n1") for rate in (30, 10, 20)])
    assert (found.rate, found.rates, found.operations) == (20, [30, 10, 20], 20)
    assert found.processor_us == pytest.approx({"generator": 0.5, "n1": 2, "n2": 1})
    assert (found.generator_us, found.leader_us, found.servers_us) == pytest.approx((0.5, 2, 3))


class FakeServers(Servers):
    """Holds as many messages as the test says."""

    name = "fake"
    protocols = {Protocol.OWN: "rpc"}  # noqa: RUF012

    def __init__(self, stored: int) -> None:
        super().__init__(Settings())
        self.messages = stored
        self.deleted: list[str] = []

    def start(self) -> None:
        raise NotImplementedError

    def stop(self) -> None:
        raise NotImplementedError

    def description(self) -> str:
        return "fake"

    def processes(self) -> Mapping[str, int]:
        return {"n1": 1, "n2": 2, "n3": 3}

    def leader(self, queue: str) -> str:
        return {"a": "n2", "b": "n3"}.get(queue, "n1")

    def address(self, server: str, protocol: Protocol) -> str:
        return f"{server}:1"

    def create(self, queue: str, row: Row) -> None:
        pass

    def stored(self, queue: str) -> int:
        return self.messages

    def delete(self, queue: str) -> None:
        self.deleted.append(queue)


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
    assert good.deleted == bad.deleted == ["bench0"]


def test_processor_time_counts_a_process_with_its_children() -> None:
    script = "while :; do :; done & exec sleep 60"
    with subprocess.Popen(["sh", "-c", script], start_new_session=True) as process:
        try:
            before = machine_seconds()
            while tree_seconds([process.pid])[0] < 0.02:
                assert process.poll() is None
            assert machine_seconds() > before
        finally:
            os.killpg(process.pid, signal.SIGKILL)
    assert tree_seconds([process.pid]) == [0]


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
