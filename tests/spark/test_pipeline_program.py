"""The program lmq-pipeline: options, configuration files, exit codes, and output."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lmqcluster import Client
from tests.integration.cluster import Cluster, clean_environment, ports, reaper, wait_for

from .queues import numbered, pulled, push

DEADLINE_S = 400.0
Invoke = Callable[..., tuple[int, str, str]]


@pytest.fixture
def invoke(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Invoke:
    """Runs the program in this process, in the running session if the test has one; returns status, output
    and errors.
    """
    from lmqcluster_cli.pipeline.program import main

    for name in [name for name in os.environ if name.startswith("LMQ_")]:
        monkeypatch.delenv(name)

    def run(*arguments: str) -> tuple[int, str, str]:
        capfd.readouterr()
        monkeypatch.setattr(sys, "argv", ["lmq-pipeline", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capfd.readouterr()
        return int(ended.value.code or 0), out, err

    return run


USAGE_ERRORS = {
    "archive q": "Missing option '--output'",
    "archive --output t": "pass either a QUEUE or --match REGEXP",
    "archive q --match x --output t": "pass either a QUEUE or --match REGEXP",
    "archive q --output t --once --trigger 5": "--once and --trigger exclude each other",
    "archive q --output t --batch 0": "'--batch': 0 is not in the range",
    "archive q --output t --servers host:99999": "--servers: ",
    "migrate q --checkpoint c": "Missing option '--to'",
    "migrate q --to a:1 --to-ca-file x --to-same-credentials --checkpoint c": "--to-same-credentials excludes",
    "archive q --output t --rate 0": "'--rate': 0.0 is not in the range",
    "replay rows.csv": "pass either --queue NAME or --queue-by COLUMN",
    "replay rows.csv --queue a --queue-by b": "pass either --queue NAME or --queue-by COLUMN",
    "replay rows.csv --queue a --queue-prefix b": "--queue-prefix requires --queue-by",
    "replay rows.csv --queue a --unordered --order-by b": "--unordered and --order-by exclude each other",
    "replay t --archive --value v": "--archive excludes --value and --format",
    "replay t --archive --queue a --queue-prefix b": "--queue-prefix requires --queue-by or --archive",
    "replay rows.csv --queue a --from 2026-11-03": "--from and --to require --archive",
    "replay t --archive --from tomorrow": "'--from': 'tomorrow' is not a time such as 2026-11-03T14:00",
    "replay t --archive --from 2026-11-03T01:00+01:00 --to 2026-11-03": "--from must be before --to",
    "replay t --archive --rate 0": "'--rate': 0.0 is not in the range",
    "archive q --output t --by week": "'--by': 'week' is not one of 'hour', 'day'",
    "replay rows.txt --queue a": "the format of rows.txt is unknown: pass --format",
    "replay rows.csv --queue a": "rows.csv does not exist",
    "report journal": "journal does not exist",
    "archive q --output t --quarantine b": "--quarantine and a schema",
    "archive q --output t --json-schema none.json": "File 'none.json' does not exist",
    "archive q --output t --format orc": "'orc' is not one of 'parquet', 'delta'",
    "watch .": "Missing option '--checkpoint'",
    "watch none --checkpoint c": "none does not exist",
    "watch . --checkpoint c --alert-redelivered 2": "'--alert-redelivered': 2.0 is not in the range",
    "dead-letters": "Missing argument 'QUEUE...'",
    "dead-letters q --set value=1": "--to, --set and --dry-run require --redrive",
    "dead-letters q --redrive --set colour=1": "--set: 'colour=1' is not COLUMN=SQL with one of value",
    "dead-letters q --redrive --set value": "--set: 'value' is not COLUMN=SQL",
    "dead-letters q --redrive --set value=a --set value=b": "--set: value is given twice",
    "dead-letters q --redrive --output t": "--output and --redrive exclude each other",
    "report": "Missing argument 'PATH...'",
    "--spark memory=1g report x": "--spark: 'memory=1g' is not of the form spark.KEY=VALUE",
}


@pytest.mark.parametrize("words", USAGE_ERRORS)
def test_a_wrong_option_is_named_in_one_line(
    invoke: Invoke, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = invoke(*words.split())
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert USAGE_ERRORS[words] in err
    assert list(tmp_path.iterdir()) == []


CONFIG_ERRORS = {
    "nonsense = ": "not TOML",
    "serverz = 'a:1'": "serverz is not an option: did you mean servers?",
    "[archive]\nouput = 'x'": "[archive] ouput is not an option: did you mean output?",
    "[archive]\nbatch = 'many'": "[archive] batch: 'many' is not a valid integer range",
    "[report]\nqueues = -1": "[report] queues: -1",
}


@pytest.mark.parametrize("content", CONFIG_ERRORS)
def test_a_mistake_in_the_configuration_file_is_named_in_one_line(invoke: Invoke, content: str, tmp_path: Path) -> None:
    file = tmp_path / "pipeline.toml"
    file.write_text(content)
    command = ["report", "x"] if "report" in content else ["archive", "q", "--output", "t"]
    code, out, err = invoke("--config", str(file), *command)
    assert (code, out) == (78, "")
    assert err.count("\n") == 1
    assert f"{file}: {CONFIG_ERRORS[content]}" in err


def test_a_missing_configuration_file(invoke: Invoke, tmp_path: Path) -> None:
    code, _out, err = invoke("--config", str(tmp_path / "none.toml"), "report", "x")
    assert code == 78
    assert "none.toml: No such file" in err


def test_flags_beat_the_environment_which_beats_the_file(
    invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "pipeline.toml"
    file.write_text("servers = 'file:99999'\n[archive]\noutput = 'x'\nmatch = '^a'\nonce = true\n")
    archive = ("--config", str(file), "archive")
    assert "file:99999" in invoke(*archive)[2]
    monkeypatch.setenv("LMQ_SERVERS", "environment:99999")
    assert "environment:99999" in invoke(*archive)[2]
    assert "flag:99999" in invoke(*archive, "--servers", "flag:99999")[2]
    monkeypatch.setenv("LMQ_PIPELINE_ARCHIVE_MATCH", "")
    assert invoke(*archive, "q", "--match", "x")[0] == 2


def test_unreachable_servers_are_reported_before_spark_starts(invoke: Invoke, tmp_path: Path) -> None:
    address = f"127.0.0.1:{ports.take()}"
    code, out, err = invoke("archive", "q", "--output", str(tmp_path / "t"), "--servers", address)
    assert (code, out) == (69, "")
    assert err.count("\n") == 1
    assert f"--servers {address}" in err
    assert "Connection refused" in err


def test_an_unreadable_token_file_is_reported_before_spark_starts(invoke: Invoke, tmp_path: Path) -> None:
    missing = str(tmp_path / "none")
    for option in ("--token-file", "--ca-file", "--cert-file"):
        code, _out, err = invoke("archive", "q", "--output", str(tmp_path / "t"), option, missing)
        assert (code, missing in err, "No such file" in err) == (78, True, True)
        target = ("--to", "127.0.0.1:1", "--checkpoint", str(tmp_path / "c"))
        assert invoke("migrate", "q", *target, option, missing)[0] == 78


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_are_printed(invoke: Invoke, shell: str) -> None:
    code, out, _err = invoke("completion", shell)
    assert code == 0
    assert "_LMQ_PIPELINE_COMPLETE" in out


def test_queue_names_are_completed(
    invoke: Invoke, cluster: Cluster, client: Client, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    push(client, queue, [b"x"])
    words = f"lmq-pipeline archive {queue[:-1]}"
    for name, value in {"_LMQ_PIPELINE_COMPLETE": "bash_complete", "COMP_CWORD": "2", "COMP_WORDS": words}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("LMQ_NODE", cluster[0].http)
    assert invoke()[1].splitlines() == [f"plain,{queue}"]
    monkeypatch.setenv("LMQ_NODE", f"127.0.0.1:{ports.take()}")
    assert invoke()[1].strip() == ""


def test_replay_and_report_print_tables_and_json(
    invoke: Invoke, spark: SparkSession, client: Client, servers: str, queue: str, tmp_path: Path
) -> None:
    rows = tmp_path / "rows.jsonl.gz"
    rows.write_bytes(gzip.compress(b'{"n": 1}\nbad\n'))
    replay = ("replay", str(rows), "--queue", queue, "--servers", servers)
    plan = ("replay", str(rows), "--queue", queue, "--dry-run", "--servers", "127.0.0.1:1", "--skip-bad")
    code, out, err = invoke(*plan)
    assert (code, out) == (0, f"queue\trows\tbytes\n{queue}\t1\t8\n(all)\t1\t8\n")
    assert err == "lmq-pipeline: 1 bad rows would be skipped\n"
    code, out, _err = invoke(*plan, "--where", "line LIKE 'no%'", "--json")
    assert json.loads(out) == {"queues": [], "queue_count": 0, "rows": 0, "bytes": 0, "bad_rows": 1}
    code, out, err = invoke(*replay, "--where", "line LIKE")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("lmq-pipeline: --where: ")
    code, out, err = invoke(*replay)
    assert (code, out) == (65, "")
    assert err.count("\n") == 1
    assert "rows.jsonl.gz, line 2: a row that cannot be read: bad; nothing was pushed (--skip-bad" in err
    assert invoke(*replay, "--skip-bad") == (0, "rows\tstored\tbad_rows\n1\t1\t1\n", "")
    assert pulled(client, queue) == [b'{"n": 1}']
    code, out, err = invoke(*replay, "--skip-bad")
    assert (code, out) == (0, "rows\tstored\tbad_rows\n1\t0\t1\n")
    assert "1 rows were stored by an earlier replay of the same name" in err
    assert pulled(client, queue) == []

    journal = tmp_path / "journal.jsonl"
    journal.write_text(
        '{"time":"2026-11-03T15:00:00.000000Z","event":"push","queue":"q","node":"n1","count":7,"bytes":70}\n'
    )
    page = tmp_path / "report.html"
    code, out, err = invoke("report", str(journal), "--html", str(page))
    assert (code, err) == (0, "")
    header, line, total = (line.split("\t") for line in out.splitlines())
    assert dict(zip(header, line, strict=True))["arrivals"] == "7"
    assert total[:2] == ["(all)", "7"]
    assert page.read_text().startswith("<!DOCTYPE html>")
    code, out, err = invoke("report", str(rows))
    assert (code, err) == (65, "lmq-pipeline: the event journals contain no readable event\n")


def test_a_watch_prints_windows_and_alerts(spark: SparkSession, tmp_path: Path, invoke: Invoke) -> None:
    (tmp_path / "journal").mkdir()
    times = ["2026-11-03T15:00:00.000000Z", "2026-11-03T15:02:00.000000Z"]
    pushes = [{"time": time, "event": "push", "queue": "q", "node": "n", "count": 7, "bytes": 1} for time in times]
    lines = "".join(f"{json.dumps(one)}\n" for one in pushes)
    (tmp_path / "journal" / "events-20261103T150000.000000Z-n.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    command = ("watch", str(tmp_path / "journal"), "--checkpoint", str(tmp_path / "c"), "--once", "--alert-open", "5")
    code, out, err = invoke(*command, "--json")
    assert code == 1
    row = json.loads(out)
    assert (row["window"], row["queue"], row["open"], row["wait_p99_s"]) == ("2026-11-03T15:00:00Z", "q", 7, None)
    assert err == "alert: queue 'q', 2026-11-03T15:00:00Z: open 7.0 > 5\n"
    assert invoke(*command) == (0, "", ""), "a window is shown once"


def test_dead_letters_are_shown_and_redriven(
    spark: SparkSession, client: Client, servers: str, queue: str, invoke: Invoke
) -> None:
    dead = f"{queue}.dead"
    client.update_props(queue, {"retry": 0, "dead_letter_queue": dead})
    push(client, queue, numbered(3))
    assert all(message.nack() for message in client.pull_many(queue, 3, 30))
    push(client, dead, [b"by a client"])
    code, out, err = invoke("dead-letters", dead, "--servers", servers, "--where", "reason = 'exhausted'")
    assert (code, err) == (0, "")
    header, line = (row.split("\t") for row in out.splitlines())
    assert dict(zip(header, line, strict=True)) | {"hour": "", "first_offset": "", "bytes": ""} == {
        "queue": dead, "origin": queue, "reason": "exhausted", "hour": "", "messages": "3", "deliveries_max": "1",
        "bytes": "", "first_offset": "",
    }  # fmt: skip
    redrive = ("dead-letters", dead, "--servers", servers, "--redrive", "--set", "value = upper(text)")
    code, out, err = invoke(*redrive, "--dry-run", "--json")
    first, *_others = json.loads(out)["samples"]
    assert (first["before"], first["after"]) == ("m-000000", "M-000000")
    code, out, err = invoke(*redrive)
    assert code == 0
    assert out.splitlines()[-1] == f"{dead}\t4\t3\t1\t0\t1"
    assert "1 messages have no origin and were kept; send them with --to" in err
    assert pulled(client, queue) == [content.upper() for content in numbered(3)]
    code, _out, err = invoke(*redrive, "--where", "offset >")
    assert (code, err.count("\n")) == (2, 1)
    assert "--where 'offset >'" in err


def test_a_continuous_archive_stops_at_ctrl_c(client: Client, servers: str, queue: str, tmp_path: Path) -> None:
    push(client, queue, numbered(100))
    table = tmp_path / "table"
    command = [sys.executable, "-m", "lmqcluster_cli.pipeline", "--master", "local[1]", "archive", queue]
    command += ["--servers", servers, "--output", str(table), "--trigger", "0", "--json"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=clean_environment(), start_new_session=True
    )
    reaper.tell("+", process.pid)
    try:
        wait_for(
            lambda: (table / "_checkpoint" / "commits" / "0").exists() or process.poll() is not None,
            "a commit",
            DEADLINE_S,
        )
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=DEADLINE_S)
    finally:
        process.kill()
        process.wait()
        reaper.tell("-", process.pid)
    assert process.returncode == 0, err
    assert json.loads(out) | {"seconds": 0} == {"messages": 100, "micro_batches": 1, "seconds": 0}
    assert err.decode().startswith("Stopping;")
    assert err.count(b"\n") == 1


def test_spark_submit_runs_it_and_gets_its_status(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"n": 1}\nbad\n')
    program = [sys.executable, "-m", "lmqcluster_cli.pipeline", "--submit-file"]
    file = subprocess.run(program, capture_output=True, text=True, check=True, timeout=DEADLINE_S).stdout.strip()
    submit = [str(Path(sys.executable).with_name("spark-submit")), "--master", "local[1]"]
    submit += ["--conf", "spark.ui.enabled=false", "--conf", "spark.sql.shuffle.partitions=1", file]
    environment = clean_environment({"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"})
    done = subprocess.run(
        [*submit, "replay", str(rows), "--queue", "q", "--dry-run"],
        capture_output=True,
        env=environment,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 65, done.stderr.decode()
    # spark-submit sends both of its program's streams to standard output.
    assert b"rows.jsonl, line 2: a row that cannot be read" in done.stdout


def test_the_master_is_set_by_spark_submit(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    code, _out, err = invoke("--master", "local", "report", "x")
    assert code == 2
    assert "pass --master to spark-submit" in err
