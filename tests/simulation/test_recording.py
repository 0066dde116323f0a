"""A recording of a run depends on the run alone, and a comparison finds one changed byte."""

import collections
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import pytest

from tests.simulation.host import Host
from tests.simulation.recording import Run, differences, main
from tests.simulation.workload import Workload

ROOT = Path(__file__).parents[2]
RUNS = ("--subject", "core,node", "--profile", "members", "--seeds", "1")


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("recordings") / "before.jsonl"
    assert main(["--record", str(path), *RUNS]) == 0
    return path


def test_other_processes_record_the_same_bytes(recorded: Path, tmp_path: Path) -> None:
    again = tmp_path / "again.jsonl"
    command = [sys.executable, "-m", "tests.simulation.recording", "--record", str(again), *RUNS]
    # Strings hash differently there.
    subprocess.run(command, cwd=ROOT, env={**os.environ, "PYTHONHASHSEED": "7"}, capture_output=True, check=True)
    assert again.read_bytes() == recorded.read_bytes()


def test_a_comparison_of_the_same_code_finds_nothing(recorded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--compare", str(recorded), "--subject", "core"]) == 0
    assert "1 runs compared" in capsys.readouterr().out


def test_a_comparison_of_no_run_fails(recorded: Path) -> None:
    assert main(["--compare", str(recorded), "--profile", "calm"]) == 1


@contextmanager
def one_changed_command() -> Iterator[None]:
    """Change the last byte of a proposal."""
    hand_over = Workload._hand_over

    def changed(workload: Workload, host: Host, command: bytes) -> None:
        if command.startswith(b"00000020:"):
            command = command[:-1] + b"!"
        hand_over(workload, host, command)

    with mock.patch.object(Workload, "_hand_over", changed):
        yield


@pytest.mark.parametrize("subject", ["core", "node"])
def test_one_changed_byte_of_one_entry_is_found(
    subject: str, recorded: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with one_changed_command():
        assert main(["--compare", str(recorded), "--subject", subject]) == 1
    found, summary = capsys.readouterr().out.splitlines()
    assert found.startswith(f"{subject} members seed 1: n1 log, ")
    assert "n2 log" in found
    assert "events" not in found
    # The state of a core is the digest of its log; a node's client has consumed the message.
    assert ("state" in found) == (subject == "core")
    assert summary.endswith("1 differ")


def test_a_recording_has_the_log_and_the_state_of_every_member(recorded: Path) -> None:
    for line in recorded.read_text().splitlines():
        recording = json.loads(line)
        assert not recording["violations"]
        members = recording["members"].values()
        assert len(members) >= 3
        assert all(len(member["log"]) == 64 and member["log_changes"] > 10 for member in members)
        states = collections.Counter(member["state"] for member in members if member["state"])
        assert states.most_common(1)[0][1] >= 2


def test_every_part_of_a_recording_is_compared(recorded: Path) -> None:
    before = json.loads(recorded.read_text().splitlines()[0])
    assert differences(before, before) == []
    for part in ("events", "violations"):
        assert differences(before, {**before, part: None}) == [part]
    members = before["members"]
    for part in members["n2"]:
        after = {**before, "members": {**members, "n2": {**members["n2"], part: None}}}
        assert differences(before, after) == [f"n2 {part}"]
    without = {name: member for name, member in members.items() if name != "n3"}
    assert differences(before, {**before, "members": without}) == [f"n3 {part}" for part in sorted(members["n3"])]


def test_a_run_is_named_by_its_recording(recorded: Path) -> None:
    names = [Run.of(json.loads(line)) for line in recorded.read_text().splitlines()]
    assert names == [Run(subject, "members", 1) for subject in ("core", "node")]
