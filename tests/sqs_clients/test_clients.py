"""AWS's published clients work with a cluster unchanged: only the endpoint and the keys differ.

Each program creates queues, sends singly and in batches, receives with long polls, hides messages again, deletes them, and meets
an error of which its SDK makes a class. SDKs compare the digests of what they send and receive.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from ..integration.cluster import wait_for
from ..other_language.nodejs import nodejs
from .conftest import Keyed
from .installing import go_program, java_libraries, npm_packages, php_with_asyncaws, python_packages

FOLDER = Path(__file__).parent
DEADLINE_S = 200.0
OLD = ("boto3==1.28.60", "botocore==1.31.60")
"""The last release but a few that speaks the older protocol."""


def run(keyed: Keyed, command: Sequence[str | Path], **more: str) -> str:
    """Run a program to its end; return its output."""
    done = subprocess.run(
        [str(word) for word in command],
        env={**keyed.environment, **more},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_boto3(keyed: Keyed, queue_name: str) -> None:
    run(keyed, [sys.executable, FOLDER / "scenario.py", keyed.url(0), queue_name[-40:]])


def test_boto3_of_before_the_json_protocol(keyed: Keyed, queue_name: str) -> None:
    packages = python_packages("old", *OLD)
    command = (sys.executable, FOLDER / "scenario.py", keyed.url(1), queue_name[-40:])
    assert run(keyed, command, PYTHONPATH=str(packages)).strip() == "1.28.60"


def test_javascript_and_sqs_consumer(keyed: Keyed, queue_name: str) -> None:
    run(keyed, [nodejs(), FOLDER / "scenario.mjs", f"{npm_packages()}/", keyed.url(2), queue_name[-40:]])


def test_go(keyed: Keyed, queue_name: str) -> None:
    run(keyed, [go_program(FOLDER / "golang"), keyed.url(0), queue_name[-40:]])


def test_php_with_asyncaws(keyed: Keyed, queue_name: str) -> None:
    command: list[str | Path] = [php_with_asyncaws(), FOLDER / "scenario.php", keyed.url(2), queue_name[-40:]]
    assert run(keyed, command) == "done\n"


def test_java(keyed: Keyed, queue_name: str) -> None:
    libraries = java_libraries(FOLDER / "java")
    run(
        keyed,
        [
            "java",
            "-Xmx128m",
            "-cp",
            f"{libraries}/*",
            FOLDER / "java" / "Scenario.java",
            keyed.url(1),
            queue_name[-40:],
        ],
    )


def test_the_death_of_the_leader_neither_loses_nor_doubles_a_message(mortal: Keyed) -> None:
    old = {"PYTHONPATH": str(python_packages("old", *OLD))}
    python = [sys.executable, str(FOLDER / "scenario.py")]
    commands = {
        "new": (python, {}),
        "old": (python, old),
        "javascript": ([nodejs(), str(FOLDER / "scenario.mjs"), f"{npm_packages()}/"], {}),
    }
    urls = [f"http://{node.sqs}" for node in mortal.cluster.nodes if node is not mortal.leader]
    programs = [
        subprocess.Popen(
            [*command, urls[place % 2], name, "400"],
            env={**mortal.environment, **more},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for place, (name, (command, more)) in enumerate(commands.items())
    ]
    with ExitStack() as ends:
        for one in programs:
            ends.enter_context(one)
            ends.callback(one.kill)
        assert programs[0].stdout is not None
        assert programs[0].stdout.readline() == "a quarter has been sent\n"
        mortal.leader.kill()
        for one in programs:
            _out, err = one.communicate(timeout=DEADLINE_S)
            assert one.returncode == 0, err


def test_the_command_line_of_aws(keyed: Keyed, queue_name: str, tmp_path: Path) -> None:
    packages = python_packages("cli", "awscli==1.46.3")
    name = queue_name[-40:]

    def aws(action: str, *words: str, ok: bool = True) -> str:
        command = [
            sys.executable,
            "-m",
            "awscli",
            "sqs",
            action,
            "--endpoint-url",
            keyed.url(2),
            "--output",
            "json",
            *words,
        ]
        environment = {**keyed.environment, "PYTHONPATH": str(packages)}
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=DEADLINE_S, check=False, cwd=tmp_path
        )
        assert (done.returncode == 0) == ok, done.stderr
        return done.stdout if ok else done.stderr

    url = json.loads(aws("create-queue", "--queue-name", name))["QueueUrl"]
    attributes = (
        '{"raw": {"DataType": "Binary", "BinaryValue": "AP8="}, "s": {"DataType": "String", "StringValue": "x"}}'
    )
    sent = json.loads(
        aws("send-message", "--queue-url", url, "--message-body", "h\u00e9llo", "--message-attributes", attributes)
    )
    aws("send-message-batch", "--queue-url", url, "--entries", "Id=a,MessageBody=b1", "Id=b,MessageBody=b2")
    limits = ("--max-number-of-messages", "10", "--wait-time-seconds", "20", "--message-attribute-names", "All")
    (first, *others) = json.loads(aws("receive-message", "--queue-url", url, *limits))["Messages"]
    assert (first["Body"], first["MD5OfBody"]) == ("h\u00e9llo", sent["MD5OfMessageBody"])
    # This client takes the value as it is written.
    assert first["MessageAttributes"]["raw"]["BinaryValue"] == base64.b64encode(b"AP8=").decode()
    assert [one["Body"] for one in others] == ["b1", "b2"]
    handle = ("--receipt-handle", first["ReceiptHandle"])
    aws("change-message-visibility", "--queue-url", url, *handle, "--visibility-timeout", "0")
    (again,) = json.loads(aws("receive-message", "--queue-url", url, *limits))["Messages"]
    aws("delete-message", "--queue-url", url, "--receipt-handle", again["ReceiptHandle"])
    counts = json.loads(aws("get-queue-attributes", "--queue-url", url, "--attribute-names", "All"))["Attributes"]
    assert (counts["ApproximateNumberOfMessages"], counts["ApproximateNumberOfMessagesNotVisible"]) == ("0", "2")
    aws("delete-queue", "--queue-url", url)
    missing = aws("get-queue-url", "--queue-name", name, ok=False)
    assert "AWS.SimpleQueueService.NonExistentQueue" in missing


def test_celery_with_the_transport_for_sqs(keyed: Keyed, queue_name: str, tmp_path: Path) -> None:
    packages = python_packages("celery", "pycurl==7.49.0")
    notes = tmp_path / "notes"
    key = keyed.environment["AWS_SECRET_ACCESS_KEY"]
    environment = {
        **keyed.environment,
        "PYTHONPATH": os.pathsep.join([str(packages), str(FOLDER), os.environ.get("PYTHONPATH", "")]),
        "LMQ_TEST_BROKER": f"sqs://aws:{key}@{keyed.cluster[1].sqs}",
        "LMQ_TEST_PREFIX": f"{queue_name[-40:]}-",
        "LMQ_TEST_FILE": str(notes),
    }
    program = "from tasks import note; [note.delay(f'task {number}') for number in range(20)]"
    subprocess.run([sys.executable, "-c", program], env=environment, timeout=DEADLINE_S, check=True)
    worker = [sys.executable, "-m", "celery", "-A", "tasks", "worker", "--pool", "solo", "--loglevel", "INFO"]
    log = (tmp_path / "log").open("wb")
    with log, subprocess.Popen(worker, env=environment, stdout=log, stderr=log, cwd=tmp_path) as process:
        try:
            wait_for(lambda: notes.exists() and len(notes.read_text().splitlines()) >= 20, "all tasks", 120)
        except TimeoutError as exc:
            pytest.fail(f"{exc}\n{(tmp_path / 'log').read_text()[-3000:]}")
        finally:
            process.terminate()
            process.wait(60)
    assert sorted(notes.read_text().splitlines()) == sorted(f"task {number}" for number in range(20))
