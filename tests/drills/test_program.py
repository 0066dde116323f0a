"""The program lmq-drill as people and machines use it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from xml.etree import ElementTree as ET

from click.testing import CliRunner
from lmqcluster_chaos.cli import main
from lmqcluster_chaos.scenario import library

from .planted import GUILTY, Writer, history

DEADLINE_S = 120.0
SPARK_DEADLINE_S = 400.0
PROGRAM = [sys.executable, "-m", "lmqcluster_chaos.cli"]
SMALL = """
title = "Small"
[load]
seconds = 3
[[fault]]
kind = "kill"
target = "leader"
at_s = 1
for_s = 1
"""


def test_list_shows_every_scenario() -> None:
    shown = json.loads(CliRunner().invoke(main, ["list", "--json"]).output)
    assert {scenario["name"] for scenario in shown} == set(library())
    people = CliRunner().invoke(main, ["list"])
    assert people.exit_code == 0
    assert all(name in people.output for name in library())


def test_an_unknown_scenario_is_one_line_and_78() -> None:
    done = subprocess.run([*PROGRAM, "run", "kill_everybody"], capture_output=True, text=True, check=False)
    assert done.returncode == 78
    assert done.stderr.startswith("lmq-drill: no scenario or file is named 'kill_everybody'")
    assert done.stderr.count("\n") == 1


def test_check_judges_a_written_history(tmp_path: Path) -> None:
    undrained = Writer("q")
    undrained.push("p1-0", 1)
    histories = {"pass": history("q"), "fail": history("q", GUILTY["acked twice"][0]), "unknown": undrained.events}
    for (verdict, events), code in zip(histories.items(), (0, 1, 3), strict=True):
        path = tmp_path / f"{verdict}.jsonl"
        path.write_text("".join(event.to_json() + "\n" for event in events))
        done = CliRunner().invoke(main, ["check", str(path)])
        assert (json.loads(done.output)["verdict"], done.exit_code) == (verdict, code)
    broken = tmp_path / "broken.jsonl"
    broken.write_text("not json\n")
    assert CliRunner().invoke(main, ["check", str(broken)]).exit_code == 65


def test_verify_judges_histories_on_spark(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    path.write_text("".join(event.to_json() + "\n" for event in history("q", GUILTY["acked twice"][0])))
    verify = [*PROGRAM, "verify", str(path), "--json", "--master", "local[1]"]
    done = subprocess.run(verify, capture_output=True, text=True, check=False, timeout=SPARK_DEADLINE_S)
    assert (done.returncode, done.stderr) == (1, "")
    assert json.loads(done.stdout)["verdict"] == "guilty"
    missing = CliRunner().invoke(main, ["verify", str(tmp_path / "none.jsonl")])
    assert (missing.exit_code, "does not exist" in missing.output) == (2, True)


def test_run_writes_reports_and_prints_pass(tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text(SMALL)
    out = tmp_path / "out"
    command = [*PROGRAM, "run", str(tmp_path / "small.toml"), "--seed", "7", "--out", str(out), "--time-factor", "10"]
    done = subprocess.run([*command, "--json"], capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert done.returncode == 0, done.stderr
    [drill] = json.loads(done.stdout)["drills"]
    assert (drill["scenario"], drill["seed"], drill["verdict"]) == ("small", 7, "pass")
    assert drill["windows"][0]["in_step_s"] > 0
    assert json.loads((out / "report.json").read_text())["passed"] == 1
    html = (out / "report.html").read_text()
    picture = ET.fromstring(html[html.index("<svg") : html.index("</svg>") + len("</svg>")])
    assert [fault.findtext("title") for fault in picture.iter("rect")] == [f"kill {drill['windows'][0]['hit'][0]}"]
    assert {curve.get("class") for curve in picture.iter("polyline")} == {"push", "pull", "slow", "half"}
    assert any("leads" in (text.text or "") for text in picture.iter("text"))
    assert len((out / "small-7" / "history.jsonl").read_text().splitlines()) > 100
    again = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert again.returncode == 2
    assert "is not empty" in again.stderr


def test_a_drill_that_is_killed_leaves_no_process_behind(tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text(SMALL.replace("seconds = 3", "seconds = 100"))
    out = tmp_path / "out"
    command = [*PROGRAM, "run", str(tmp_path / "small.toml"), "--out", str(out)]
    drill = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    folder = out / "small-1"
    wait_until(lambda: len(list(folder.glob("n*/lmq.pid"))) == 3)
    pids = [int(path.read_text()) for path in folder.glob("n*/lmq.pid")]
    drill.send_signal(signal.SIGKILL)
    drill.wait()
    wait_until(lambda: not any(map(alive, pids)))


def wait_until(condition: object) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.05)


def alive(pid: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
