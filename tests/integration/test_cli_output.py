"""Output that cannot be written: a full disk, and an encoding without all characters."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from lmqcluster import Client

from .cluster import NodeProcess, clean_environment
from .programs import DEADLINE_S, Result, command_line, run

FULL = Path("/dev/full")
NAME = "Größe-€-𝄞"
ESCAPED = "Gr\\u00f6\\u00dfe-\\u20ac-\\ud834\\udd1e"


def run_into(out: Path, program: str, *arguments: str) -> Result:
    """Run a program with its standard output in a file."""
    with out.open("w") as file:
        done = subprocess.run(
            command_line(program, *arguments),
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.PIPE,
            text=True,
            env=clean_environment(),
            timeout=DEADLINE_S,
            check=False,
        )
    return Result(done.returncode, "", done.stderr)


@pytest.mark.skipif(not FULL.exists(), reason="there is no /dev/full")
@pytest.mark.parametrize(
    "arguments",
    [
        ["lmq", "--help"],
        ["lmq", "ping"],
        ["lmq", "config", "show"],
        ["lmq-admin", "status"],
        ["lmq-admin", "--json", "stats"],
    ],
    ids=" ".join,
)
def test_a_full_disk_is_not_reported_as_a_bug(node: NodeProcess, arguments: list[str]) -> None:
    more = ["--node", node.http] if arguments[-1] in ("ping", "status", "stats") else []
    result = run_into(FULL, *arguments, *more)
    assert result.code == 74
    assert "cannot write the output: No space left on device" in result.one_line_error()


@pytest.fixture
def filled(node: NodeProcess, queue_name: str) -> Iterator[Client]:
    """A client of the node; its queue has 1,000 messages."""
    with Client(node.rpc) as client:
        client.push_many(queue_name, [b"x" * 100] * 1000)
        yield client


def counts(node: NodeProcess, queue: str) -> tuple[int, int]:
    """Return the messages of a queue that are ready and leased."""
    shown = node.get_json(f"/v1/queues/{queue}")
    return shown["ready"], shown["leased"]


@pytest.mark.usefixtures("filled")
@pytest.mark.skipif(not FULL.exists(), reason="there is no /dev/full")
def test_a_drain_to_a_full_disk_takes_nothing(node: NodeProcess, queue_name: str) -> None:
    result = run_into(FULL, "lmq-admin", "--node", node.http, "drain", queue_name)
    assert result.code == 74
    assert "cannot write standard output: No space left on device" in result.err.splitlines()[-1]
    assert counts(node, queue_name) == (1000, 0)


@pytest.mark.usefixtures("filled")
def test_a_drain_to_a_file_that_becomes_full_acknowledges_what_is_written(
    node: NodeProcess, queue_name: str, tmp_path: Path
) -> None:
    file = tmp_path / "drained"
    drain = command_line("lmq-admin", "--node", node.http, "drain", queue_name, "--output", str(file))
    limited = ["bash", "-c", 'ulimit -f 128; exec "$@"', "limited", *drain]
    done = subprocess.run(
        limited,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env=clean_environment(),
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 74
    assert f"cannot write {file}: File too large" in done.stderr.splitlines()[-1]
    written = [line for line in file.read_text().split("\n")[:-1] if json.loads(line)]
    ready, leased = counts(node, queue_name)
    assert leased == 0
    assert 1000 - ready <= len(written) < 1000


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
@pytest.mark.parametrize("form", ["json", "tsv", "table"])
def test_names_that_the_encoding_lacks_are_escaped(node: NodeProcess, encoding: str, form: str) -> None:
    with Client(node.rpc) as client:
        client.push(NAME, b"x")
    environment = {"PYTHONIOENCODING": encoding, "LMQ_NODE": node.http, "COLUMNS": "200"}
    listed = subprocess.run(
        command_line("lmq-admin", "--output", form, "queue", "ls"),
        stdin=subprocess.DEVNULL, capture_output=True, env=clean_environment(environment), timeout=DEADLINE_S, check=False,
    )  # fmt: skip
    assert (listed.returncode, listed.stderr) == (0, b"")
    out = listed.stdout.decode(encoding)
    if form == "json":
        assert NAME in [queue["name"] for queue in json.loads(out)["queues"]]
    shown = ESCAPED if encoding == "ascii" else ESCAPED.replace("\\u00f6", "ö").replace("\\u00df", "ß")
    assert shown in out
    missing = run("lmq-admin", "queue", "show", f"{NAME}-", environment=environment)
    assert missing.code == 66
    assert "u20ac" in missing.one_line_error()
