"""Tasks that move messages, over ``/v1`` and with ``lmq-admin queue redrive``. Every answer is validated."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest

from lmqcluster import AsyncClient

from .cluster import NodeProcess, wait_for
from .guarded_node import Guarded, guarded_node
from .programs import DEADLINE_S, Result, run, run_here
from .raw_http import call
from .test_http_v1 import Api

COUNT = 40


@pytest.fixture
def api(node: NodeProcess) -> Api:
    return Api(node.http)


@pytest.fixture
def dead(api: Api, queue_name: str) -> str:
    """A queue with dead letters of another one."""
    name = f"{queue_name}.dead"
    api.ok("PATCH", f"/v1/queues/{queue_name}/properties", {"retry": 0, "dead_letter_queue": name})
    api.ok("POST", f"/v1/queues/{queue_name}/messages", {"messages": [{"content": "x"}] * COUNT})
    found = api.ok("POST", f"/v1/queues/{queue_name}/pull", {"max": COUNT})["messages"]
    api.ok("POST", f"/v1/queues/{queue_name}/nack", {"ids": [one["id"] for one in found]})
    return name


def tasks(api: Api, queue: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = api.ok("GET", f"/v1/queues/{queue}/move-tasks")["tasks"]
    return found


def wait_for_end(api: Api, queue: str) -> dict[str, Any]:
    """Return the latest task once it has ended."""
    wait_for(lambda: tasks(api, queue)[0]["status"] != "running", "the end of the task")
    return tasks(api, queue)[0]


def test_a_task_returns_dead_letters(api: Api, queue_name: str, dead: str) -> None:
    assert tasks(api, dead) == []
    number = api.ok("POST", f"/v1/queues/{dead}/move-tasks")["number"]
    task = wait_for_end(api, dead)
    assert abs(task.pop("started_at") - time.time()) < 60
    assert task == {
        "number": number, "status": "completed", "to": None, "rate": None, "moved": COUNT, "to_move": COUNT, "failure": None,
    }  # fmt: skip
    assert api.ok("GET", f"/v1/queues/{queue_name}")["ready"] == COUNT


def test_a_queue_has_one_running_task_which_can_be_cancelled(api: Api, queue_name: str, dead: str) -> None:
    path = f"/v1/queues/{dead}/move-tasks"
    number = api.ok("POST", path, {"to": queue_name, "rate": 1})["number"]
    api.problem(api("POST", path, {}), 409, "conflict")
    assert [tasks(api, dead)[0][name] for name in ("status", "to", "rate")] == ["running", queue_name, 1]
    assert api.ok("DELETE", f"{path}/{number}")["moved"] < COUNT
    assert [task["status"] for task in tasks(api, dead)] == ["cancelled"]
    api.problem(api("DELETE", f"{path}/{number}"), 404, "task_not_found")


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"rate": 0}, 400, "bad_request"),
        ({"rate": 10_001}, 400, "bad_request"),
        ({"rate": 1.5}, 400, "bad_request"),
        ({"rate": True}, 400, "bad_request"),
        ({"rate": None}, 400, "bad_request"),
        ({"to": 1}, 400, "bad_request"),
        ({"to": ""}, 400, "bad_name"),
        ({"to": "x" * 256}, 400, "bad_name"),
        ({"to": "surely-absent"}, 404, "queue_not_found"),
        ({"max": 1}, 400, "bad_request"),
        ([], 400, "bad_request"),
    ],
)
def test_what_starts_no_task(api: Api, queue_name: str, body: Any, status: int, code: str) -> None:
    api.ok("PUT", f"/v1/queues/{queue_name}")
    api.problem(api("POST", f"/v1/queues/{queue_name}/move-tasks", body), status, code)
    assert tasks(api, queue_name) == []


def test_queues_and_numbers_that_do_not_exist(api: Api, queue_name: str) -> None:
    path = f"/v1/queues/{queue_name}/move-tasks"
    api.problem(api("POST", path), 404, "queue_not_found")
    api.problem(api("GET", path), 404, "queue_not_found")
    api.ok("PUT", f"/v1/queues/{queue_name}")
    api.problem(api("POST", path, {"to": queue_name}), 400, "bad_request")
    for number in ("0", "9" * 18, "9" * 19, "9" * 4000, "-1", "x", "%ff", "1%2f2"):
        assert api("DELETE", f"{path}/{number}").status in {404, 414}


def test_a_body_beyond_the_bound_is_refused(node: NodeProcess, queue_name: str) -> None:
    answer = call(node.http, "POST", f"/v1/queues/{queue_name}/move-tasks", b"[" + b"1," * (5 << 20), {})
    assert answer.status == 413


def test_tasks_need_permissions(tmp_path: Path) -> None:
    async def main(guarded: Guarded) -> None:
        root, mine = await guarded.token("root", "admin"), await guarded.token("mine", "admin", "^own")
        worker = await guarded.token("worker", "write", "^own")

        async def status(token: str, method: str, target: str, body: Any = None) -> int:
            return (await guarded.ask(method, f"/v1/queues/{target}", token, json=body or {}))[0]

        for name in ("own", "theirs"):
            assert await status(root, "PUT", name) == 200
        for token, method, target, body in (
            (mine, "POST", "theirs/move-tasks", {}),
            (mine, "GET", "theirs/move-tasks", None),
            (mine, "DELETE", "theirs/move-tasks/1", None),
            (mine, "POST", "own/move-tasks", {"to": "theirs"}),
            (worker, "POST", "own/move-tasks", {}),
            (worker, "DELETE", "own/move-tasks/1", None),
        ):
            assert await status(token, method, target, body) == 403, (method, target)
        assert await status(worker, "GET", "own/move-tasks") == 200
        assert await status(mine, "POST", "own/move-tasks") == 200

    async def bounded() -> None:
        async with asyncio.timeout(DEADLINE_S), guarded_node(tmp_path) as guarded:
            await main(guarded)

    asyncio.run(bounded())


def test_a_destination_is_shown_only_to_tokens_that_cover_it(tmp_path: Path) -> None:
    async def main(guarded: Guarded) -> None:
        root, mine = await guarded.token("root", "admin"), await guarded.token("mine", "read", "^own")
        for name in ("own", "theirs"):
            assert (await guarded.ask("PUT", f"/v1/queues/{name}", root, json={}))[0] == 200
        path = "/v1/queues/own/move-tasks"
        assert (await guarded.ask("POST", path, root, json={"to": "theirs"}))[0] == 200
        for token, expected in ((root, {"to": "theirs"}), (mine, {})):
            (task,) = json.loads((await guarded.ask("GET", path, token))[2])["tasks"]
            assert {name: task[name] for name in task if name == "to"} == expected
            async with AsyncClient(f"127.0.0.1:{guarded.rpc.port}", token=token, discover=False) as client:
                (task,) = await client.move_tasks("own")
            assert {name: task[name] for name in task if name == "to"} == expected
        command = ("--node", f"127.0.0.1:{guarded.http.port}", "queue", "redrive", "own", "--tasks")
        shown = await asyncio.to_thread(run, "lmq-admin", *command, environment={"LMQ_TOKEN": mine})
        assert "a queue that the token does not cover" in shown.out

    async def bounded() -> None:
        async with asyncio.timeout(DEADLINE_S), guarded_node(tmp_path) as guarded:
            await main(guarded)

    asyncio.run(bounded())


def admin(node: NodeProcess, *arguments: str) -> Result:
    return run_here("--node", node.http, "queue", "redrive", *arguments)


def test_lmq_admin_starts_shows_and_cancels_tasks(node: NodeProcess, api: Api, queue_name: str, dead: str) -> None:
    dry = admin(node, dead, "--background", "--dry-run")
    assert dry.out == (
        f"would start a task that sends messages of queue {dead} ({COUNT} waiting messages) to where they came from\n"
    )
    assert admin(node, dead, "--tasks").out.count("\n") == 1
    started = admin(node, dead, "--background", "--to", queue_name, "--rate", "1", "--yes", "--json")
    number = json.loads(started.out)["number"]
    again = admin(node, dead, "--background", "--yes")
    assert (again.code, again.err.count("\n")) == (69, 1)
    (row,) = [line.split("\t") for line in admin(node, dead, "--tasks").out.splitlines()[1:]]
    assert (row[:3], row[4:6]) == ([str(number), "running", queue_name], [str(COUNT), "1"])
    assert json.loads(admin(node, dead, "--tasks", "--json").out)["tasks"][0]["number"] == number
    assert admin(node, dead, "--cancel", str(number)).code == 2
    assert admin(node, dead, "--cancel", str(number), "--yes").code == 0
    assert admin(node, dead, "--cancel", str(number), "--yes").code == 66
    assert admin(node, dead, "--background", "--yes") == (0, "", "")
    assert wait_for_end(api, dead)["status"] == "completed"
    assert admin(node, dead, "--background", "--max", "1", "--yes").code == 2
    assert admin(node, dead, "--background", "--rate", "1.5", "--yes").code == 2


@pytest.mark.parametrize(
    "options",
    [
        ["--tasks", "--to", "other"],
        ["--tasks", "--background"],
        ["--tasks", "--cancel", "1"],
        ["--cancel", "1", "--background"],
        ["--cancel", "1", "--rate", "5"],
        ["--cancel", "1", "--sequence", "4"],
    ],
    ids=" ".join,
)
def test_options_that_exclude_each_other_are_a_usage_error(
    node: NodeProcess, api: Api, dead: str, options: list[str]
) -> None:
    refused = admin(node, dead, *options, "--yes")
    assert (refused.code, refused.out) == (2, "")
    assert tasks(api, dead) == []
