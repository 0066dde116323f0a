"""``lmq-admin session`` and ``lmq-admin lock``, for sessions of other tokens."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from lmqcluster import Client
from lmqcluster.wire.errors import LmqError

from .cluster import Cluster, NodeProcess, wait_for
from .programs import Result, run_here
from .raw_http import call


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with Cluster(1, directory=tmp_path_factory.mktemp("sessions")) as cluster:
        yield cluster[0]


@pytest.fixture(scope="module")
def secrets(node: NodeProcess) -> dict[str, str]:
    """The secrets by token name."""
    found = {"root": run_here("--node", node.http, "token", "create", "root", "--role", "admin").out.strip()}
    for name in ("one", "other"):
        words = ["--node", node.http, "token", "create", name, "--role", "write"]
        found[name] = run_here(*words, environment={"LMQ_TOKEN": found["root"]}).out.strip()
    return found


@pytest.fixture
def admin(node: NodeProcess, secrets: dict[str, str]) -> Any:
    def run(*arguments: str, token: str = "root") -> Result:
        return run_here("--node", node.http, *arguments, environment={"LMQ_TOKEN": secrets[token]})

    return run


def listed(admin: Any, kind: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(admin(kind, "ls", "--json").out)[f"{kind}s"]
    return rows


def test_a_session_is_shown_and_ended_with_all_it_holds(node: NodeProcess, secrets: dict[str, str], admin: Any) -> None:
    assert listed(admin, "session") == []
    with Client(node.rpc, token=secrets["one"]) as client:
        client.push_many("jobs", [b"1", b"2", b"3"])
        client.update_props("turns", {"exclusive": True})
        session = client.open_session(3600)
        assert client.pull("jobs", 0, session=session).ack()
        assert client.pull("jobs", 0, session=session) is not None
        assert client.pull("turns", 0, session=session) is None
        assert client.lock("nightly", session) == 1
        (row,) = listed(admin, "session")
        assert 3500 < row.pop("ends_in_s") <= 3600
        # Settled messages do not count.
        held = {"leased": 1, "locks": 1, "queues": 1}
        assert row == {"session": session, "owner": "one", "ttl_s": 3600.0, **held}
        words = admin("session", "end", session, "--dry-run").out
        assert words == f"would end session {session}, with 1 lease, 1 lock and 1 queue\n"
        assert admin("session", "end", session, "--yes").code == 0
        assert (listed(admin, "session"), listed(admin, "lock")) == ([], [])
        with pytest.raises(LmqError, match="has ended"):
            client.pull("jobs", 0, session=session)
        assert client.pull("jobs", 0, auto_ack=True).content == b"2"
    gone = admin("session", "end", session, "--yes")
    assert (gone.code, gone.err) == (66, f"lmq-admin: session {session} does not exist; see lmq-admin session ls\n")


def test_a_lock_is_freed_for_the_next_in_line(node: NodeProcess, secrets: dict[str, str], admin: Any) -> None:
    with Client(node.rpc, token=secrets["one"]) as one, Client(node.rpc, token=secrets["other"]) as other:
        first, second = one.open_session(3600), other.open_session(3600)
        token = one.lock("weekly", first, 60)
        with ThreadPoolExecutor() as pool:
            waiting = pool.submit(other.lock, "weekly", second, 60)
            wait_for(lambda: listed(admin, "lock")[0]["waiting"], "the other session waits")
            row = {"name": "weekly", "session": first, "token": token, "waiting": 1}
            assert listed(admin, "lock") == [row]
            assert admin("lock", "free", "weekly", "--yes").code == 0
            following = waiting.result(60)
        assert (following or 0) > (token or 0) > 0
        assert listed(admin, "lock") == [{**row, "session": second, "token": following, "waiting": 0}]
        assert one.unlock("weekly", first) is False
        assert [one["session"] for one in listed(admin, "session")] == [first, second]
        assert one.end_session(first)
        assert other.end_session(second)
    free = admin("lock", "free", "weekly", "--yes")
    assert (free.code, free.err) == (66, "lmq-admin: lock weekly is not held; see lmq-admin lock ls\n")


def test_only_administrators_see_and_end_sessions_of_others(
    node: NodeProcess, secrets: dict[str, str], admin: Any
) -> None:
    with Client(node.rpc, token=secrets["one"]) as client:
        session = client.open_session(3600)
        assert client.lock("mine", session)
        for kind in ("session", "lock"):
            assert admin(kind, "ls", token="other").code == 77
        headers = {"authorization": f"Bearer {secrets['other']}"}
        assert call(node.http, "DELETE", f"/v1/sessions/{session}", headers=headers).json == {"ended": False}
        body = json.dumps({"session": session}).encode()
        assert call(node.http, "DELETE", "/v1/locks/mine", body, headers=headers).status in (409, 410)
        assert client.renew_session(session)
        assert len(listed(admin, "lock")) == 1
        assert client.end_session(session)
