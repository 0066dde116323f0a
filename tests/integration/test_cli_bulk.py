"""``lmq-admin replay`` and ``drain`` against real nodes."""

from __future__ import annotations

import base64
import json
import signal
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from .cluster import Cluster, NodeProcess, clean_environment, wait_for
from .programs import DEADLINE_S, Result, command_line, feed, run, run_in_terminal, started


@pytest.fixture
def admin(shared_cluster: Cluster) -> Callable[..., Result]:
    """Runs lmq-admin against the shared cluster."""
    return lambda *arguments, **more: run("lmq-admin", "--node", shared_cluster[1].http, *arguments, **more)


def size(node: NodeProcess, queue: str) -> int:
    """Return the number of messages in a queue, 0 if there is no queue."""
    found = json.loads(run("lmq-admin", "--node", node.http, "--json", "queue", "ls").out)["queues"]
    return next((item["size"] for item in found if item["name"] == queue), 0)


def contents(drained: str) -> list[str]:
    """Return the contents of drained messages in the order in which they were written."""
    return [json.loads(line)["content"] for line in drained.splitlines()]


def test_rows_keep_their_order_within_each_queue(admin, tmp_path: Path, queue_name: str) -> None:
    rows = [(f"{queue_name}.{number % 5}", number) for number in range(5000)]
    file = tmp_path / "rows.csv"
    file.write_text("queue,number\n" + "".join(f"{queue},{number}\n" for queue, number in rows))
    result = admin("replay", str(file), "--queue-by", "queue")
    assert result == (0, "queue\tmessages\n" + "".join(f"{queue_name}.{i}\t1000\n" for i in range(5)), "")

    for number in range(5):
        drained = admin("drain", f"{queue_name}.{number}", "--wait", "0")
        assert drained.code == 0
        assert drained.err == f"{queue_name}.{number}\t1000\n"
        expected = [
            json.dumps({"queue": q, "number": str(n)}, separators=(",", ":")) for q, n in rows if n % 5 == number
        ]
        assert contents(drained.out) == expected


def test_json_lines_from_standard_input_by_template(admin, queue_name: str) -> None:
    lines = [f'{{"a":"x","n":{n}}}' for n in range(3)]
    result = admin("--json", "replay", "-", "--format", "jsonl", "--queue", queue_name + ".{a}", stdin="\n".join(lines))
    assert result.code == 0
    assert json.loads(result.out) == {
        "rows": 3,
        "bytes": sum(map(len, lines)),
        "bad_rows": 0,
        "queues": {f"{queue_name}.x": 3},
    }
    drained = admin("drain", "--match", f"^{queue_name}\\.", "--wait", "0")
    assert contents(drained.out) == lines
    first = json.loads(drained.out.splitlines()[0])
    assert (first["queue"], first["type"], first["retry"]) == (f"{queue_name}.x", "normal", 2)


def test_a_bad_row_ends_the_replay_with_its_line(admin, queue_name: str) -> None:
    text = "q,n\n" + f"{queue_name},1\n" * 3 + f"{queue_name}\n" + f"{queue_name},2\n"
    result = admin("replay", "-", "--format", "csv", "--queue-by", "q", stdin=text)
    assert result.code == 65
    assert "-: line 5: 1 fields where the header has 2 (--skip-bad" in result.one_line_error()
    assert "3 rows acknowledged" in result.one_line_error()
    assert result.out == f"queue\tmessages\n{queue_name}\t3\n"


def test_bad_rows_can_be_skipped_and_are_counted(admin, queue_name: str) -> None:
    text = "q,n\n" + f"{queue_name}\n" * 15 + f"{queue_name},2\n"
    result = admin("replay", "-", "--format", "csv", "--queue-by", "q", "--skip-bad", stdin=text)
    assert (result.code, result.out) == (0, f"queue\tmessages\n{queue_name}\t1\n")
    *errors, last = result.err.splitlines()
    assert len(errors) == 10
    assert "line 2: 1 fields" in errors[0]
    assert last == "lmq-admin: 15 bad rows skipped"


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["replay", "-"], 2, "pass either --queue-by COLUMN or --queue TEMPLATE"),
        (["replay", "-", "--queue-by", "q", "--queue", "x"], 2, "pass either"),
        (["replay", "-", "--queue", "x", "--queue-prefix", "p"], 2, "--queue-prefix applies to --queue-by"),
        (["replay", "-", "--queue", "{"], 2, "the queue template '{' is malformed"),
        (["replay", "-", "--queue", "x"], 2, "pass --format"),
        (["replay", "/absent.csv", "--queue", "x"], 2, "cannot read /absent.csv: No such file"),
        (["replay", "-", "--format", "csv", "--queue", "x", "--nodes", "here"], 2, "--nodes: 'here' is not HOST:PORT"),
        (["replay", "-", "--format", "csv", "--queue", "{b}"], 65, "unknown column 'b'"),
        (["drain"], 2, "name queues, or pass --match REGEXP"),
        (["drain", "--match", "("], 2, "'(' is not a regular expression"),
        (["drain", "q", "--output", "/absent/file"], 2, "cannot create /absent/file"),
    ],
)
def test_wrong_arguments(admin, arguments: list[str], code: int, text: str) -> None:
    result = admin(*arguments, stdin="a\n1\n")
    assert result.code == code
    assert text in result.one_line_error()


@pytest.mark.parametrize("command", [["replay", "-", "--format", "csv", "--queue", "x"], ["drain", "x"]])
def test_unreachable_nodes(command: list[str]) -> None:
    result = run("lmq-admin", "--node", "127.0.0.1:1", *command, stdin="a\n1\n")
    assert result.code == 69
    assert "cannot reach 127.0.0.1:1" in result.one_line_error()
    result = run("lmq-admin", *command, "--nodes", "127.0.0.1:1,127.0.0.1:2", "--patience", "0.5", stdin="a\n1\n")
    assert result.code in (69, 75)
    assert "127.0.0.1" in result.one_line_error()


def test_ctrl_c_stops_between_rows_and_reports_the_progress(shared_cluster: Cluster, queue_name: str) -> None:
    node = shared_cluster[0]
    arguments = ["--node", node.http, "replay", "-", "--format", "csv", "--queue", queue_name]
    with started("lmq-admin", *arguments) as process:
        feed(process, "n\n" + "".join(f"{n}\n" for n in range(4500)))
        # Rows are sent in windows of 2,000; the rest waits for more input, which never arrives.
        wait_for(lambda: size(node, queue_name) == 4000, "two windows of rows")
        process.send_signal(signal.SIGINT)
        assert process.wait(DEADLINE_S) == 130
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.read().decode() == f"queue\tmessages\n{queue_name}\t4000\n"
        assert "all 4,000 rows up to line 4,001 are acknowledged, none after it" in process.stderr.read().decode()
    assert size(node, queue_name) == 4000


def test_a_second_ctrl_c_abandons_a_node_that_does_not_answer(tmp_path: Path) -> None:
    with NodeProcess(tmp_path) as node:
        arguments = ["--node", node.http, "replay", "-", "--format", "csv", "--queue", "q"]
        with started("lmq-admin", *arguments) as process:
            assert process.stderr is not None
            rows = "".join(f"{n}\n" for n in range(2000))
            feed(process, f"n\n{rows}")
            wait_for(lambda: size(node, "q") == 2000, "the first window of rows")
            node.pause()
            feed(process, rows)
            process.send_signal(signal.SIGINT)
            assert b"press Ctrl-C again to stop at once" in process.stderr.readline()
            process.send_signal(signal.SIGINT)
            assert process.wait(DEADLINE_S) == 130
            # If the second window had not been read yet, the first Ctrl-C was enough.
            assert process.stderr.read().decode().splitlines()[-1].startswith("lmq-admin: interrupted")


def test_ctrl_c_ends_a_drain_that_waits(shared_cluster: Cluster, queue_name: str) -> None:
    node = shared_cluster[0]
    run("lmq-admin", "--node", node.http, "message", "push", queue_name, "one")
    with started("lmq-admin", "--node", node.http, "drain", queue_name, "--wait", "600") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert b'"content":"one"' in process.stdout.readline()
        wait_for(lambda: size(node, queue_name) == 0, "the acknowledgement")
        process.send_signal(signal.SIGINT)
        assert process.wait(DEADLINE_S) == 130
        assert process.stderr.read().decode().splitlines()[1:] == [
            f"{queue_name}\t1",
            "lmq-admin: interrupted: every message written is acknowledged",
        ]
    run("lmq-admin", "--node", node.http, "message", "push", queue_name, "two")
    pulled = run("lmq-admin", "--node", node.http, "message", "pull", queue_name, "--wait", "30")
    assert pulled.out == "two\n", "the pull that was given up took nothing"


def test_a_cluster_that_stays_full_ends_the_replay_with_a_clear_error(tmp_path: Path) -> None:
    # Bodies below 1 KiB stay in memory with their messages.
    large = b"".join(b'{"n":%d,"filler":"%s"}\n' % (n, b"x" * 900) for n in range(45_000))
    with NodeProcess(tmp_path, arguments=["--memory-bytes-max", "64MiB"]) as node:
        admin = ["lmq-admin", "--node", node.http]
        replay = [*admin, "replay", "-", "--format", "jsonl", "--queue", "full", "--patience", "1"]
        # Delayed messages stay in memory, however long the queue is.
        assert run(*admin, "queue", "set", "full", "--delay", "86400", "--create").code == 0
        run(*replay, stdin=large)
        wait_for(lambda: run(*admin, "message", "push", "full", "x").code == 69, "the limit")
        before = size(node, "full")
        result = run(*replay, stdin=b'{"n":1}\n' * 10)
        assert (result.code, size(node, "full")) == (69, before)
        error = result.one_line_error()
        assert "-: lines 1 to 10, queue full:" in error
        assert "raise memory_bytes_max" in error
        assert "; 0 rows acknowledged" in error
        # Room is made while the replay retries, so it succeeds.
        with started(*replay[:-1], "60") as process:
            assert process.stdin is not None
            feed(process, '{"n":1}\n' * 10)
            process.stdin.close()
            assert run(*admin, "queue", "rm", "full", "--yes").code == 0
            assert process.wait(60) == 0
        assert size(node, "full") == 10


def test_a_drain_into_a_file_never_overwrites_one(admin, tmp_path: Path, queue_name: str) -> None:
    for content in ("one", "two"):
        admin("message", "push", queue_name, content)
    file = tmp_path / "out.jsonl"
    file.write_text("precious")
    refused = admin("drain", queue_name, "--output", str(file))
    assert refused.code == 2
    assert "File exists" in refused.one_line_error()
    file.unlink()
    result = admin("drain", queue_name, "--output", str(file), "--wait", "0")
    assert result == (0, f"queue\tmessages\n{queue_name}\t2\n", "")
    assert contents(file.read_text()) == ["one", "two"]


def test_counts_of_replay_and_drain_are_a_table_on_request(admin, tmp_path: Path, queue_name: str) -> None:
    rows = "".join(f'{{"queue": "{queue_name}.{number % 2}"}}\n' for number in range(3))
    replay = ("replay", "-", "--format", "jsonl", "--queue-by", "queue")
    drain = ("drain", f"{queue_name}.0", f"{queue_name}.1", "--wait", "0", "--output", str(tmp_path / "out"))
    for command, stdin in ((replay, rows), (drain, "")):
        result = admin("-o", "table", *command, stdin=stdin)
        assert (result.code, result.err) == (0, "")
        assert [line.split() for line in result.out.splitlines()] == [
            ["Queue", "Messages"],
            [f"{queue_name}.0", "2"],
            [f"{queue_name}.1", "1"],
        ]
        assert "\t" not in result.out


def test_an_empty_standard_input_is_no_message(admin, queue_name: str) -> None:
    """A script whose content is missing must not store an empty message."""
    refused = admin("message", "push", queue_name, stdin=b"")
    assert refused.code == 2
    assert "standard input is empty" in refused.one_line_error()
    assert admin("message", "push", queue_name, "").code == 0
    assert json.loads(admin("drain", queue_name, "--wait", "0").out)["content"] == ""


def test_a_drain_keeps_contents_that_are_not_text(admin, queue_name: str) -> None:
    admin("message", "push", queue_name, "--content-type", "image/png", stdin=b"\xff\x00")
    message = json.loads(admin("drain", queue_name, "--wait", "0").out)
    assert (message["content"], message["content_type"]) == ({"base64": "/wA="}, "image/png")


def test_a_queue_whose_name_is_not_utf8(shared_cluster: Cluster, queue_name: str) -> None:
    node = shared_cluster[0].http
    name = queue_name.encode() + b"\xff"
    url = f"http://{node}/messages/{urllib.parse.quote(name)}"
    with urllib.request.urlopen(urllib.request.Request(url, data=b"x", method="POST")) as response:
        assert response.status == 200
    drained = subprocess.run(
        [*command_line("lmq-admin", "--node", node, "drain", "--wait", "0"), name],
        capture_output=True, env=clean_environment(), timeout=60, check=True,
    )  # fmt: skip
    message = json.loads(drained.stdout)
    assert base64.b64decode(message["queue"]["base64"]) == name
    listed = run("lmq-admin", "--node", node, "queue", "ls").out
    assert f"base64:{base64.b64encode(name).decode()}\t0" in listed


def test_draining_an_empty_queue_is_no_error(admin, queue_name: str) -> None:
    admin("message", "push", queue_name, "x")
    assert admin("queue", "purge", queue_name, "--yes").code == 0
    assert admin("drain", queue_name, "--wait", "0") == (0, "", f"{queue_name}\t0\n")
    assert admin("drain", "--match", f"^{queue_name}-absent$") == (0, "", "")


def test_draining_a_missing_queue_leaves_no_file(admin, tmp_path: Path, queue_name: str) -> None:
    admin("message", "push", queue_name, "one")
    file = tmp_path / "out.jsonl"
    refused = admin("drain", queue_name, f"{queue_name}-absent", "--output", str(file), "--wait", "0")
    assert (refused.code, refused.out) == (66, "")
    assert f"there is no queue '{queue_name}-absent'" in refused.one_line_error()
    assert not file.exists()
    assert contents(admin("drain", queue_name, "--wait", "0").out) == ["one"]


@pytest.mark.parametrize("columns", [60, 120])
def test_people_see_progress_and_a_table(
    shared_cluster: Cluster, tmp_path: Path, queue_name: str, columns: int
) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text('{"n":1}\n' * 3000)
    node = shared_cluster[0].http
    code, seen = run_in_terminal(
        "lmq-admin", "--node", node, "replay", str(file), "--queue", queue_name, columns=columns
    )
    assert code == 0
    assert "100%" in seen
    assert "3,000 rows (20.5 KiB) acknowledged through 3 nodes." in seen
    assert "Messages" in seen
    code, seen = run_in_terminal(
        "lmq-admin",
        "--node",
        node,
        "drain",
        queue_name,
        "--output",
        str(tmp_path / "out"),
        "--wait",
        "0",
        columns=columns,
    )
    assert code == 0
    assert "3,000" in seen
