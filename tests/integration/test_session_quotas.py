"""Quotas of one token for sessions, wait lists and waiting pushes, through a real node: more is refused,
others are unharmed.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from lmqcluster.core.owners.quotas import Kind, Quotas

from .guarded_node import ADMIN, AsyncRpc, Guarded
from .test_owned_state import code_of, run, until

MINE, THIEF = b"victim", b"thief"


def limit(monkeypatch: pytest.MonkeyPatch, **limits: int) -> None:
    """Lower the quotas, so that an attack is short."""
    monkeypatch.setattr(Quotas, "LIMITS", {**Quotas.LIMITS, **{Kind[name]: most for name, most in limits.items()}})


async def both(guarded: Guarded) -> tuple[AsyncRpc, AsyncRpc, str, str]:
    """Return connections and secrets of an attacker and of a regular client."""
    thief, victim = await guarded.token("thief", "write"), await guarded.token("victim", "write")
    return await guarded.connect(thief), await guarded.connect(victim), thief, victim


def used(guarded: Guarded, kind: Kind, owner: bytes) -> int:
    return guarded.node.replica.machine.state.quotas.used(kind, owner)


async def problem(guarded: Guarded, token: str, path: str, body: dict[str, Any]) -> tuple[int, str]:
    status, _, text = await guarded.ask("POST", path, token, json=body)
    return status, json.loads(text).get("code", "")


def test_sessions_of_one_token_are_bounded_and_stay_with_its_principal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit(monkeypatch, SESSIONS=20)

    async def main(guarded: Guarded) -> None:
        thief, victim, secret, _ = await both(guarded)
        answers = [await thief.call("open_session", 3600) for _ in range(25)]
        assert [error and code_of(error) for error, _ in answers] == [None] * 20 + ["quota_exceeded"] * 5
        assert await problem(guarded, secret, "/v1/sessions", {"ttl": 3600}) == (429, "quota_exceeded")
        error, session = await victim.call("open_session", 3600)
        assert error is None
        # A session belongs to its token: no other client can renew it, end it, or pull in it.
        assert (await thief.call("renew_session", session))[1] is not True
        assert (await thief.call("end_session", session))[1] is not True
        assert (await victim.call("renew_session", session)) == (None, True)
        # Ended sessions do not count. The others stay when their token is deleted, until they expire or an
        # administrator ends them.
        assert await thief.call("end_session", answers[0][1]) == (None, True)
        assert (await thief.call("open_session", 3600))[0] is None
        assert (await guarded.ask("DELETE", "/v1/tokens/thief", ADMIN))[0] == 204
        assert used(guarded, Kind.SESSIONS, THIEF) == 20
        heir = await guarded.connect(await guarded.token("heir", "write", principal="thief"))
        assert await heir.call("renew_session", answers[1][1]) == (None, True)
        status, _, _ = await guarded.ask("DELETE", f"/v1/sessions/{answers[2][1].decode()}", ADMIN)
        assert (status, used(guarded, Kind.SESSIONS, THIEF)) == (200, 19)
        assert used(guarded, Kind.SESSIONS, MINE) == 1

    run(tmp_path, main)


def test_locks_and_wait_list_places_are_bounded_and_end_with_their_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit(monkeypatch, PLACES=20)

    async def main(guarded: Guarded) -> None:
        thief, victim, secret, _ = await both(guarded)
        _, theirs = await thief.call("open_session", 3600)
        _, mine = await victim.call("open_session", 3600)
        answers = [await thief.call("lock", f"lock-{number}", theirs) for number in range(25)]
        assert [error and code_of(error) for error, _ in answers] == [None] * 20 + ["quota_exceeded"] * 5
        body = {"session": theirs.decode()}
        assert await problem(guarded, secret, "/v1/locks/one-more", body) == (429, "quota_exceeded")
        # A place at an exclusive queue counts alike.
        assert await victim.call("update_props", "only-one", {"exclusive": True}) == (None, b"ok")
        error, _ = await thief.call("pull", "only-one", 0, {"session": theirs})
        assert code_of(error) == "quota_exceeded"
        assert (await victim.call("lock", "mine", mine))[0] is None
        assert await victim.call("lock", "lock-0", mine) == (None, None)
        assert await thief.call("end_session", theirs) == (None, True)
        assert used(guarded, Kind.PLACES, THIEF) == 0
        assert (await victim.call("lock", "lock-0", mine))[1] > answers[-6][1]

    run(tmp_path, main)


def test_pushes_that_wait_are_bounded_in_number_and_bytes_and_leave_with_their_client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit(monkeypatch, WAITING_PUSHES=20, WAITING_BYTES=200_000)

    async def main(guarded: Guarded) -> None:
        _, victim, secret, mine = await both(guarded)
        assert await victim.call("update_props", "full", {"max_items": 1}) == (None, b"ok")
        assert (await victim.call("push", "full", "there"))[0] is None

        def waiting(token: str, content: str) -> asyncio.Task[tuple[int, str, str]]:
            body = {"messages": [{"content": content}], "wait": 3600}
            return asyncio.create_task(guarded.ask("POST", "/v1/queues/full/messages", token, json=body))

        large = waiting(secret, "x" * 150_000)
        await until(lambda: used(guarded, Kind.WAITING_PUSHES, THIEF) == 1)
        status, _, text = await waiting(secret, "y" * 60_000)
        assert (status, json.loads(text)["code"]) == (429, "quota_exceeded")
        flood = [waiting(secret, "z") for _ in range(25)]
        refused = 0
        while refused < 6:
            done, _ = await asyncio.wait(flood, return_when=asyncio.FIRST_COMPLETED)
            refused += len(done)
            for task in done:
                flood.remove(task)
                assert task.result()[0] == 429
        assert used(guarded, Kind.WAITING_PUSHES, THIEF) == 20
        own = waiting(mine, "the victim's")
        await until(lambda: used(guarded, Kind.WAITING_PUSHES, MINE) == 1)
        # A client that closes its connection leaves nothing, and the client after it is next.
        for task in (large, *flood):
            task.cancel()
        await until(lambda: used(guarded, Kind.WAITING_PUSHES, THIEF) == 0)
        assert used(guarded, Kind.WAITING_BYTES, THIEF) == 0
        assert (await victim.call("pull", "full", 0, {"auto_ack": True}))[1][b"content"] == b"there"
        assert (await own)[0] == 200
        assert (await victim.call("pull", "full", 0, {"auto_ack": True}))[1][b"content"] == b"the victim's"

    run(tmp_path, main)
