"""No route and no method bypasses access control: all are called by clients without permission."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from lmqcluster.protocols.http.server.permissions import PERMISSIONS as ROUTE_NEEDS
from lmqcluster.protocols.msgpack_rpc.methods.permissions import PERMISSIONS as METHOD_NEEDS
from lmqcluster.protocols.msgpack_rpc.methods.table import METHODS

from .guarded_node import ADMIN, Guarded, guarded_node

DEADLINE_S = 180.0
REFUSALS_MAX = 30
OPEN_ROUTES = {("GET", "/livez"), ("GET", "/readyz")}
OPEN_METHODS = {b"auth"}

# Routes and methods that a read token, or an admin token for other queues, may use. Everything else is refused.
READ_ROUTES = {
    ("GET", path)
    for path in (
        "/properties", "/properties/{name}", "/stats", "/metrics", "/metrics/queues", "/openapi.json",
        "/v1/queues", "/v1/queues/{name}", "/v1/queues/{name}/properties", "/v1/queues/{name}/messages",
        "/v1/queues/{name}/stats", "/v1/queues/{name}/history", "/v1/queues/{name}/consumers", "/v1/queues/{name}/bindings",
        "/v1/queues/{name}/labels", "/v1/queues/{name}/move-tasks",
        "/v1/locks/{name}", "/v1/schedules", "/v1/schedules/{name}",
        "/v1/subscriptions", "/v1/subscriptions/{name}", "/v1/jobs", "/v1/cluster", "/v1/cluster/check", "/v1/access",
        "/v1/overview", "/v1/log-level", "/stats.json", "/stats.txt",
    )
}  # fmt: skip
OTHER_ROUTES = {
    ("GET", path)
    for path in (
        "/properties", "/stats", "/metrics", "/openapi.json", "/v1/queues", "/v1/subscriptions",
        "/v1/schedules", "/v1/jobs", "/v1/cluster", "/v1/cluster/check", "/v1/access",
        "/v1/overview", "/v1/log-level", "/stats.json", "/stats.txt",
    )
} | {
    ("POST", "/v1/transactions"),
    # Sessions belong to their owner: other clients find none.
    ("POST", "/v1/sessions"), ("POST", "/v1/sessions/{id}/renew"), ("DELETE", "/v1/sessions/{id}"),
    # Jobs belong to their owner too.
    ("DELETE", "/v1/jobs/{name}"),
    # The queue of a schedule decides, see `test_schedules`; here there is no schedule.
    ("GET", "/v1/schedules/{name}"), ("PUT", "/v1/schedules/{name}"), ("DELETE", "/v1/schedules/{name}"),
    *(("POST", f"/v1/schedules/{{name}}/{action}") for action in ("pause", "resume", "run")),
}  # fmt: skip
READ_METHODS = {
    *(b"ping", b"cluster", b"producer", b"cancel", b"get_default_props"),
    *(b"subscription", b"subscriptions", b"backlog", b"peek", b"peek_ranges", b"jobs"),
    *(b"incarnation", b"cut_batch"),
    *(b"bindings", b"count_labelled", b"move_tasks"),
    *(b"schedule", b"schedules"),
}
OTHER_METHODS = {
    *(b"ping", b"cluster", b"producer", b"cancel", b"get_default_props", b"subscriptions"),
    b"incarnation",
    # Jobs belong to their owner: other clients find none.
    *(b"mark", b"end_jobs", b"jobs", b"begin_epoch", b"finish_epoch"),
    # A list of schedules has those of the token's queues; the others are checked by their queues.
    *(
        b"schedules",
        b"schedule",
        b"set_schedule",
        b"pause_schedule",
        b"resume_schedule",
        b"run_schedule",
        b"delete_schedule",
    ),
    # Sessions belong to their owner too.
    *(b"open_session", b"renew_session", b"end_session"),
    # Each operation is checked: see `test_a_transaction_touches_only_what_the_token_covers`.
    b"transaction",
}
ARGUMENTS: dict[bytes, list[Any]] = {
    b"push_all": [".*", "x"],
    b"pull": ["victim", 0],
    b"pull_any": [".*", 0],
    b"set_default_props": [[]],
    b"reserve_batch": ["victim", 1, "victim", {"pattern": False, "count": 1, "lease": 1}],
    b"backlog": ["victim", False],
    b"transaction": [[]],
    b"mark": ["no such job", "stream"],
    b"end_jobs": [["no such job"]],
    b"begin_epoch": ["walk", 0, "run"],
    b"finish_epoch": ["walk", 0, "run", 0, "0" * 16],
    b"producer": ["p" * 16, 1],
    b"cancel": [1],
    b"open_session": [1],
    b"renew_session": ["no such session"],
    b"end_session": ["no such session"],
    b"auth": ["a wrong secret"],
    **{name: [] for name in (b"ping", b"cluster", b"get_default_props", b"subscriptions", b"jobs")},
}
"""Arguments of methods that do not begin with a queue or a subscription."""


def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(DEADLINE_S):
            await main()

    asyncio.run(bounded())


def routes(guarded: Guarded) -> list[tuple[str, str]]:
    return [(method, path) for path, resource in guarded.http.router for method in resource.methods]


def is_open(method: str, path: str) -> bool:
    return (method, path) in OPEN_ROUTES or path in ("/", "/console") or path.startswith("/console/")


def target(path: str) -> str:
    """Return the path with its variables filled in, and the pattern that LMQ's routes require."""
    filled = re.sub(r"{\w+}", "victim", path)
    return f"{filled}?qre=victim" if path == "/messages" else filled


async def walk(guarded: Guarded, token: str | None) -> dict[tuple[str, str], int]:
    """Return the status of every route that is not open."""
    found: dict[tuple[str, str], int] = {}
    for method, path in routes(guarded):
        if not is_open(method, path):
            status, challenge, _ = await guarded.ask(method, target(path), token)
            assert (challenge != "") == (status == 401), path
            found[method, path] = status
    assert len(found) > 25
    return found


async def refusals(guarded: Guarded, token: str | None) -> dict[bytes, bytes]:
    """Return the error code of every method; empty if it succeeded or failed for another reason than access."""
    found: dict[bytes, bytes] = {}
    for number, method in enumerate(METHODS.keys() - OPEN_METHODS):
        if number % REFUSALS_MAX == 0:
            # The node closes the connection of a client whose requests it refuses again and again.
            rpc = await guarded.connect(token)
        error, _ = await rpc.call(method.decode(), *ARGUMENTS.get(method, ["victim"]))
        code = (error or b"").partition(b":")[0]
        found[method] = code if code in (b"unauthorized", b"forbidden") else b""
    assert len(found) > 25
    return found


def test_every_route_and_method_declares_its_permission(tmp_path: Path) -> None:
    async def main() -> None:
        async with guarded_node(tmp_path) as guarded:
            undeclared = [
                (method, path)
                for method, path in routes(guarded)
                if not is_open(method, path) and method not in ROUTE_NEEDS.get(path, {})
            ]
            assert undeclared == [], "declare them in protocols/http/server/permissions.py"
        assert METHODS.keys() - METHOD_NEEDS.keys() == set(), (
            "declare them in protocols/msgpack_rpc/methods/permissions.py"
        )

    run(main)


@pytest.mark.parametrize("token", [None, "lmq_wrong", ""])
def test_an_unknown_token_is_refused(tmp_path: Path, token: str | None) -> None:
    async def main() -> None:
        async with guarded_node(tmp_path) as guarded:
            assert set((await walk(guarded, token)).values()) == {401}
            for path in ("/no/such/route", "/v1/no-such-route", "/messages/victim/x/y"):
                assert (await guarded.ask("GET", path, token))[0] == 401, path
            for method in ("PUT", "HEAD", "OPTIONS", "TRACE"):
                assert (await guarded.ask(method, "/messages/victim", token))[0] == 401, method
            for _, path in OPEN_ROUTES:
                assert (await guarded.ask("GET", path, token))[0] == 200, path
            assert set((await refusals(guarded, None)).values()) == {b"unauthorized"}
            rpc = await guarded.connect()
            error, _ = await rpc.call("auth", token or "")
            assert error.startswith(b"unauthorized: ")
            error, _ = await rpc.call("pull", "victim", 0)
            assert error.startswith(b"unauthorized: ")

    run(main)


def test_the_token_must_come_as_a_bearer_token(tmp_path: Path) -> None:
    async def main() -> None:
        async with guarded_node(tmp_path) as guarded:
            url = f"http://127.0.0.1:{guarded.http.port}/v1/access"
            for value, status in [(f"Basic {ADMIN}", 401), (ADMIN, 401), (f"bearer {ADMIN}", 200), ("Bearer", 401)]:
                async with guarded.session.get(url, headers={"authorization": value}) as answer:
                    assert answer.status == status, value

    run(main)


def test_the_role_read_changes_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        async with guarded_node(tmp_path) as guarded:
            await guarded.token("root", "admin")
            reader = await guarded.token("reader", "read")
            found = await walk(guarded, reader)
            assert {route for route, status in found.items() if status != 403} == READ_ROUTES & found.keys()
            methods = await refusals(guarded, reader)
            assert {method for method, code in methods.items() if code != b"forbidden"} == READ_METHODS & methods.keys()

    run(main)


def test_a_token_for_other_queues_does_not_touch_this_one(tmp_path: Path) -> None:
    async def main() -> None:
        async with guarded_node(tmp_path) as guarded:
            await guarded.token("root", "admin")
            other = await guarded.token("other", "admin", "^other")
            found = await walk(guarded, other)
            assert {route for route, status in found.items() if status != 403} == OTHER_ROUTES & found.keys()
            methods = await refusals(guarded, other)
            # A backlog may be of a pattern too, so the method checks its arguments itself.
            assert {
                method for method, code in methods.items() if code != b"forbidden"
            } == OTHER_METHODS & methods.keys()

    run(main)


def test_the_administrator_may_do_everything(tmp_path: Path) -> None:
    async def main() -> None:
        async with guarded_node(tmp_path) as guarded:
            dangerous = {"/v1/cluster/leave", "/v1/cluster/join", "/v1/cluster/remove", "/v1/cluster/transfer"}
            for method, path in routes(guarded):
                if path not in dangerous:
                    separator = "&" if "?" in target(path) else "?"
                    status, _, text = await guarded.ask(method, f"{target(path)}{separator}t=0", ADMIN)
                    assert status not in (401, 403), (method, path, text)
            assert set((await refusals(guarded, ADMIN)).values()) == {b""}

    run(main)
