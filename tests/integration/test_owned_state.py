"""The state that the cluster keeps for its clients, through a real node: its owner, its quota, and its end."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from lmqcluster.core.owners.quotas import Kind, Quotas
from lmqcluster.node.access.tokens import list_tokens

from .guarded_node import ADMIN, AsyncRpc, Guarded, guarded_node

DEADLINE_S = 180.0


def run(folder: Path, main: Callable[[Guarded], Coroutine[Any, Any, None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(DEADLINE_S), guarded_node(folder) as guarded:
            await main(guarded)

    asyncio.run(bounded())


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - a replica emits no event
        await asyncio.sleep(0.01)


async def reserve(rpc: AsyncRpc, subscription: str, epoch: int, **session: int) -> tuple[Any, Any]:
    options = {"pattern": False, "count": 10, "lease": 60, **session}
    return await rpc.call("reserve_batch", subscription, epoch, "jobs", options)


def code_of(error: bytes) -> str:
    return error.decode().partition(":")[0]


def test_a_restricted_token_fills_its_own_subscriptions_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The attack: settle_batches under thousands of names with a UUID at the end, which no pattern covers."""
    monkeypatch.setattr(Quotas, "LIMITS", {**Quotas.LIMITS, Kind.SUBSCRIPTIONS: 20})

    async def main(guarded: Guarded) -> None:
        thief = await guarded.connect(await guarded.token("thief", "write", "^none-of-yours$"))
        victim = await guarded.connect(await guarded.token("victim", "write"))
        errors = [(await thief.call("settle_batches", _random(index), 1))[0] for index in range(30)]
        assert [error is None for error in errors] == [True] * 20 + [False] * 10
        assert {code_of(error) for error in errors if error} == {"quota_exceeded"}
        assert (await victim.call("push", "jobs", "x"))[0] is None
        assert (await reserve(victim, "victim's", 1))[1][:2] == [b"live", 1]
        # A deleted token leaves its state to its principal, against whose quota it still counts.
        assert (await guarded.ask("DELETE", "/v1/tokens/thief", ADMIN))[0] == 204
        next_one = await guarded.connect(await guarded.token("next", "write", principal="thief"))
        assert code_of((await next_one.call("claim_subscription", "one-more"))[0]) == "quota_exceeded"
        for index in range(20):
            assert (await guarded.ask("DELETE", f"/v1/subscriptions/{_random(index)}", ADMIN))[0] == 204
        assert (await next_one.call("claim_subscription", "one-more"))[0] is None

    run(tmp_path, main)


def _random(index: int) -> str:
    return f"x-{index:08x}-0000-4000-8000-000000000000"


def test_a_principal_s_subscription_is_closed_to_others(tmp_path: Path) -> None:
    """The attack: a token whose pattern covers the name claims, settles, abandons and deletes the subscription of
    another principal.
    """

    async def main(guarded: Guarded) -> None:
        owner = await guarded.connect(await guarded.token("one", "write", principal="etl"))
        thief = await guarded.connect(await guarded.token("thief", "admin", "^s$|^jobs$"))
        await owner.call("push_many", "jobs", ["1", "2", "3"])
        _, session = await owner.call("claim_subscription", "s")
        assert (await reserve(owner, "s", 1, session=session))[1][:2] == [b"live", 3]
        calls = [
            thief.call("claim_subscription", "s"),
            reserve(thief, "s", 2, session=session),
            thief.call("read_batch", "s", 1, 0, 10, session),
            thief.call("renew_batches", "s", 60, session),
            thief.call("settle_batches", "s", 1, session),
            thief.call("abandon_batches", "s", session),
            thief.call("delete_subscription", "s"),
        ]
        assert [code_of((await one)[0]) for one in calls] == ["forbidden"] * 7
        secret = await guarded.token("loud", "write")
        for method, path in (("DELETE", "/v1/subscriptions/s"), ("POST", "/v1/subscriptions/s/abandon")):
            status, _, text = await guarded.ask(method, path, secret)
            assert (status, json.loads(text)["code"]) == (403, "forbidden")
        # The old token of the principal ends; the new one continues in the same session.
        again = await guarded.connect(await guarded.token("two", "write", principal="etl"))
        assert (await guarded.ask("DELETE", "/v1/tokens/one", ADMIN))[0] == 204
        assert (await again.call("read_batch", "s", 1, 0, 10, session))[1][b"retry"] == [2, 2, 2]
        assert await again.call("settle_batches", "s", 1, session) == (None, [])
        # An administrator may end it.
        assert (await guarded.ask("POST", "/v1/subscriptions/s/abandon", ADMIN))[0] == 204
        assert (await guarded.ask("DELETE", "/v1/subscriptions/s", ADMIN))[0] == 204

    run(tmp_path, main)


def test_only_an_administrator_can_share_a_principal(tmp_path: Path) -> None:
    async def main(guarded: Guarded) -> None:
        shop = await guarded.connect(await guarded.token("shop", "write"))
        assert (await shop.call("claim_subscription", "s"))[0] is None
        assert (await guarded.ask("DELETE", "/v1/tokens/shop", ADMIN))[0] == 204
        asked = {"name": "shop", "role": "write"}
        status, _, text = await guarded.ask("POST", "/v1/tokens", ADMIN, json=asked)
        problem = json.loads(text)
        assert (status, problem["code"], problem["retryable"], "--principal shop" in problem["detail"]) == (
            409,
            "conflict",
            False,
            True,
        )
        status, _, text = await guarded.ask("POST", "/v1/tokens", ADMIN, json={**asked, "principal": "shop"})
        made = json.loads(text)
        assert (status, made["name"], made["principal"]) == (200, "shop", "shop")
        again = await guarded.connect(made["token"])
        assert (await again.call("claim_subscription", "s"))[0] is None
        status, _, text = await guarded.ask("GET", "/v1/access", made["token"])
        assert json.loads(text)["principal"] == "shop"
        status, _, text = await guarded.ask("GET", "/v1/tokens", ADMIN)
        assert [(one["name"], one["principal"]) for one in json.loads(text)["tokens"]] == [("shop", "shop")]
        # A token that may not manage tokens cannot join a principal.
        body = {"name": "joiner", "role": "write", "principal": "shop"}
        assert (await guarded.ask("POST", "/v1/tokens", made["token"], json=body))[0] == 403
        for principal in ("", "a b", "x" * 101, "a/b", "\n", 1):
            status, _, text = await guarded.ask("POST", "/v1/tokens", ADMIN, json={**body, "principal": principal})
            assert (status, json.loads(text)["code"]) == (400, "bad_request"), principal
        # The administrator of the token file is a principal too; no token gets it by its name alone.
        file = {"name": "admin_token_file", "role": "write"}
        assert (await guarded.ask("POST", "/v1/tokens", ADMIN, json=file))[0] == 400

    run(tmp_path, main)


def test_marks_belong_to_their_writer_and_store_each_message_once(tmp_path: Path) -> None:
    async def main(guarded: Guarded) -> None:
        writer = await guarded.connect(await guarded.token("writer", "write"))
        thief = await guarded.connect(await guarded.token("thief", "write", "^jobs$"))
        mark = {"job": "load", "stream": "0"}
        first = {**mark, "first": 0, "note": b"ab", "content_types": ["text/plain", None]}
        assert await writer.call("push_marked", "jobs", [b"1", b"2"], first) == (None, 2)
        assert await writer.call("push_marked", "jobs", [b"1", b"2"], first) == (None, None)
        error, _ = await writer.call("push_marked", "jobs", [b"9"], {**mark, "first": 9})
        assert code_of(error) == "out_of_sequence"
        assert await thief.call("end_jobs", ["load"]) == (None, 0)
        assert code_of((await thief.call("end_jobs", ["load"], "writer"))[0]) == "forbidden"
        assert code_of((await thief.call("push_marked", "other", [b"1"], first))[0]) == "forbidden"
        assert (await thief.call("jobs"))[1] == []
        assert await writer.call("mark", "load", "0") == (None, [2, False, 2, b"ab"])
        assert await writer.call("mark", "load", "unknown") == (None, None)
        assert await writer.call("push_marked", "jobs", [], {**mark, "first": 2, "done": True}) == (None, 0)
        assert await writer.call("push_marked", "jobs", [b"late"], {**mark, "first": 2}) == (None, None)
        ((_, [job]), root) = await writer.call("jobs"), await guarded.connect(ADMIN)
        assert (job[b"owner"], job[b"name"], job[b"streams"], job[b"messages"]) == (b"writer", b"load", 1, 2)
        assert (await root.call("end_jobs", ["load"], "writer"))[1] == 1
        assert guarded.node.service.queue(b"jobs").size == 2

    run(tmp_path, main)


def test_a_superseded_consumer_is_fenced(tmp_path: Path) -> None:
    async def main(guarded: Guarded) -> None:
        token = await guarded.token("spark", "write")
        old, new = await guarded.connect(token), await guarded.connect(token)
        await old.call("push_many", "jobs", ["1", "2", "3"])
        _, session = await old.call("claim_subscription", "s")
        assert (await reserve(old, "s", 1, session=session))[1][:2] == [b"live", 3]
        _, later = await new.call("claim_subscription", "s")
        calls = [
            reserve(old, "s", 2, session=session),
            reserve(old, "s", 2),
            old.call("read_batch", "s", 1, 0, 10, session),
            old.call("renew_batches", "s", 60, session),
            old.call("settle_batches", "s", 1, session),
            old.call("abandon_batches", "s", session),
        ]
        assert [code_of((await one)[0]) for one in calls] == ["fenced"] * 6
        assert (await new.call("read_batch", "s", 1, 0, 10, later))[1][b"retry"] == [2, 2, 2]
        status, _, text = await guarded.ask("GET", "/v1/subscriptions/s", ADMIN)
        assert (status, json.loads(text)["owner"], json.loads(text)["session"]) == (200, "spark", later)
        assert (await guarded.ask("DELETE", "/v1/subscriptions/s", ADMIN))[0] == 204
        assert (await guarded.ask("DELETE", "/v1/subscriptions/s", ADMIN))[0] == 404
        assert code_of((await reserve(new, "s", 2, session=later))[0]) == "fenced"
        info = guarded.node.service.queue(b"jobs")
        assert info is not None
        assert (info.ready, info.delayed, info.leased) == (3, 0, 0)

    run(tmp_path, main)


def test_a_key_with_another_body_is_refused_and_a_replay_is_reported(tmp_path: Path) -> None:
    async def main(guarded: Guarded) -> None:
        token = await guarded.token("shop", "write")

        async def push(body: bytes) -> tuple[int, str | None, str]:
            headers = {"authorization": f"Bearer {token}", "idempotency-key": "order-1"}
            url = f"http://127.0.0.1:{guarded.http.port}/messages/orders"
            async with guarded.session.post(url, data=body, headers=headers) as answer:
                text = answer.headers.get("x-lmq-error") or await answer.text()
                return answer.status, answer.headers.get("idempotency-replayed"), text

        assert (await push(b"one"))[:2] == (200, None)
        assert await push(b"one") == (200, "true", '{"accum":"no"}')
        status, _, text = await push(b"two")
        assert (status, "another body" in text) == (422, True)
        body = {"messages": [{"content": "one", "key": "order-1"}, {"content": "three"}]}
        status, _, text = await guarded.ask("POST", "/v1/queues/orders/messages", token, json=body)
        assert (status, json.loads(text)) == (
            200,
            {"results": [{"accum": "no", "replayed": True, "sequence": 1}, {"accum": "no", "sequence": 2}]},
        )
        body["messages"][0]["content"] = "another"
        status, _, text = await guarded.ask("POST", "/v1/queues/orders/messages", token, json=body)
        assert (status, json.loads(text)["code"]) == (422, "key_reused")
        info = guarded.node.service.queue(b"orders")
        assert info is not None
        assert info.size == 2

    run(tmp_path, main)


def test_leases_and_exhausted_messages_end_without_requests(tmp_path: Path) -> None:
    """All views agree then: nothing is leased, the exhausted message is removed and counted."""

    async def main(guarded: Guarded) -> None:
        rpc = await guarded.connect(await guarded.token("worker", "write"))
        await rpc.call("update_props", "jobs", {"timeout": 0.2, "retry": 1})
        await rpc.call("push_many", "jobs", ["1", "2"])
        assert len((await rpc.call("pull_many", "jobs", 2))[1]) == 2
        queue = guarded.node.replica.machine.state.queues[b"jobs"]
        await until(lambda: not queue.store.leases.messages)
        info = guarded.node.service.queue(b"jobs")
        assert info is not None
        assert (info.ready, info.leased, info.counters["redelivered_total"]) == (2, 0, 2)
        await rpc.call("pull_many", "jobs", 1)
        await until(lambda: queue.counters.dropped_total == 1)
        info = guarded.node.service.queue(b"jobs")
        assert info is not None
        assert (info.ready, info.leased, info.size) == (1, 0, 1)

    run(tmp_path, main)


def test_tokens_expire_by_wall_clock_time(tmp_path: Path) -> None:
    """Log time lags after an outage or a restore; the expiry that an administrator sets and reads must not."""

    async def main(guarded: Guarded) -> None:
        clock = guarded.node.replica.clock
        clock.follow(clock.now_us() + 10 * 86_400 * 1_000_000)
        await guarded.node.service.sender.barrier()
        token = await guarded.token("today", "write", lifetime_s=3600)
        assert (await guarded.ask("GET", "/v1/queues", token))[0] == 200
        [shown] = await list_tokens(guarded.node)
        assert (abs(shown.created_at - time.time()) < DEADLINE_S, shown.expired) == (True, False)
        assert shown.expires_at == pytest.approx(shown.created_at + 3600)

    run(tmp_path, main)
