"""``lmq-admin schedule`` against a real node."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from .cluster import NodeProcess
from .programs import Result, run_here


@pytest.fixture
def admin(node: NodeProcess) -> Any:
    def run(*arguments: str) -> Result:
        return run_here("--node", node.http, *arguments)

    return run


def rows(admin: Any, name: str) -> dict[str, Any]:
    (row,) = [one for one in json.loads(admin("schedule", "ls", "--json").out)["schedules"] if one["name"] == name]
    return dict(row)


def test_a_schedule_is_added_listed_paused_and_removed(admin: Any, queue_name: str) -> None:
    name = queue_name + "-s"
    added = admin(
        "schedule", "add", name, queue_name, "hello", "--cron", "30 2 * * *", "--zone", "Europe/Berlin",
        "--missed", "once", "--attribute", "a=b", "--jitter", "5m", "--json",
    )  # fmt: skip
    assert json.loads(added.out) == {"result": "created"}
    row = rows(admin, name)
    assert (row["cron"], row["zone"], row["missed"], row["jitter_s"]) == ("30 2 * * *", "Europe/Berlin", "once", 300)
    assert row["attributes"] == {"a": "b"}
    line = next(one for one in admin("schedule", "ls").out.splitlines() if one.startswith(name))
    assert "30 2 * * *" in line
    assert "active" in line
    shown = admin("schedule", "show", name)
    assert "hello" in shown.out
    assert json.loads(admin("schedule", "show", name, "--json").out)["content"] == "hello"
    assert admin("schedule", "pause", name).code == 0
    assert rows(admin, name)["paused"] is True
    assert admin("schedule", "resume", name).code == 0
    assert rows(admin, name)["paused"] is False
    assert admin("schedule", "run-now", name).code == 0
    assert admin("message", "pull", queue_name).out == "hello\n"
    assert admin("schedule", "rm", name, "--dry-run").code == 0
    assert admin("schedule", "rm", name, "--yes").code == 0
    assert admin("schedule", "rm", name, "--yes").code == 66
    assert admin("schedule", "show", name).code == 66


def test_an_interval_with_a_start_and_an_end(admin: Any, queue_name: str) -> None:
    added = admin(
        *("schedule", "add", queue_name, queue_name, "x", "--every", "1h", "--start", "2090-01-01T00:00:00+01:00"),
        *("--end", "2090-01-02"),
    )
    assert added.code == 0
    row = rows(admin, queue_name)
    assert (row["interval_s"], row["start_s"], row["end_s"]) == (3_600, 3786908400.0, 3786998400.0)
    assert row["next_s"] == row["start_s"] > time.time()
    admin("schedule", "rm", queue_name, "--yes")


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--every", "1m", "--cron", "* * * * *"],
        ["--every", "soon"],
        ["--cron", "* * * * *", "--start", "tomorrow"],
        ["--every", "1m", "--attribute", "a"],
        ["--every", "1m", "--missed", "never"],
    ],
)
def test_wrong_arguments(admin: Any, queue_name: str, arguments: list[str]) -> None:
    refused = admin("schedule", "add", queue_name, queue_name, "x", *arguments)
    assert refused.code == 2
    assert admin("schedule", "show", queue_name).code == 66


def test_what_the_node_refuses_is_one_line(admin: Any, queue_name: str) -> None:
    refused = admin("schedule", "add", queue_name, queue_name, "x", "--cron", "61 * * * *")
    assert refused.code == 65
    assert "61 * * * *" in refused.one_line_error()
