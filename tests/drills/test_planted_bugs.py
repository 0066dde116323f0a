"""Real clusters with a planted bug fail their drills, each with its finding: the drills can fail."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lmqcluster_chaos.drill import Result, run_drill
from lmqcluster_chaos.judges.checker import FAULTS
from lmqcluster_chaos.load.workload import ClientFactory, plain_client
from lmqcluster_chaos.scenario import read

from lmqcluster import AsyncClient

TIME_FACTOR = 5.0
"""Others use the machine too. Nothing here depends on time."""


def drill(folder: Path, text: str, factory: ClientFactory = plain_client) -> Result:
    path = folder / "planted.toml"
    path.write_text(f"title = 'planted'\n{text}\n", encoding="utf-8")
    return run_drill(read(path), seed=1, folder=folder / "drill", factory=factory, time_factor=TIME_FACTOR)


def found(result: Result) -> set[str]:
    assert set(result.judgement.faults) == set(FAULTS)
    return {name for name, count in result.judgement.faults.items() if count}


def test_an_ack_before_the_sync_does_not_survive_a_power_failure(tmp_path: Path) -> None:
    """In durability ``process`` nodes acknowledge data that is written and not synced; here disks keep half of that."""
    power = "[[fault]]\nkind = 'power_failure'\ntarget = 'all'\nkept = 0.5\nat_s = 3\nfor_s = 0.5"
    rest = "[cluster]\ndurability = 'process'\n[limits]\ndrain_s = 3"
    # Long enough for deliveries after the failure on a busy machine, too.
    result = drill(tmp_path, f"[load]\nseconds = 8\ntimeout_s = 5\n{rest}\n{power}")
    assert result.verdict == "fail"
    # Earlier settlements and deliveries are repeated under the same ids.
    assert "doubled_receipts" in found(result)
    assert result.judgement.faults["lost"] + result.judgement.undecided > 10


class HastyClient(AsyncClient):
    """Claims success as soon as a push is sent."""

    def push(self, queue: str | bytes, content: Any, *, key: str | bytes | None = None) -> asyncio.Future[str]:
        sent = super().push(queue, content, key=key)
        sent.add_done_callback(lambda future: future.cancelled() or future.exception())
        future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        future.set_result("ok")
        return future


def test_an_ack_before_the_answer_loses_pushes_in_flight(tmp_path: Path) -> None:
    fault = "[[fault]]\nkind = 'kill'\ntarget = 'all'\nat_s = 1.5\nfor_s = 2"
    result = drill(
        tmp_path,
        f"[load]\nseconds = 3\ntimeout_s = 1\n{fault}",
        lambda nodes, timeout_s: HastyClient(nodes, timeout_s=timeout_s),
    )
    assert result.verdict == "fail"
    assert "lost" in found(result)
    assert result.reasons[0].startswith("lost: ")


class ForgetfulClient(AsyncClient):
    """Reports success for its late pushes, and sends none of them."""

    PUSHES = 30

    def push(self, queue: str | bytes, content: Any, *, key: str | bytes | None = None) -> asyncio.Future[str]:
        number = int(bytes(content).rstrip(b".").rpartition(b"-")[2])
        if number < self.PUSHES:
            return super().push(queue, content, key=key)
        future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        future.set_result("ok")
        return future


def test_a_lost_suffix_is_reported_as_such(tmp_path: Path) -> None:
    result = drill(
        tmp_path, "[load]\nseconds = 3", lambda nodes, timeout_s: ForgetfulClient(nodes, timeout_s=timeout_s)
    )
    assert result.verdict == "fail"
    assert found(result) == {"lost"}
    assert result.reasons == [f"lost: {result.judgement.totals.lost:,} (suffix)"]
    for account in result.judgement.by_process.values():
        assert (account.lost_where, account.lost_first) == ("suffix", ForgetfulClient.PUSHES)


class Copies:
    """Clients that repeat every twentieth delivery to the next pull."""

    def __init__(self) -> None:
        self._kept: dict[str | bytes, list[Any]] = {}
        self._seen = 0

    def __call__(self, nodes: Sequence[str], timeout_s: float) -> AsyncClient:
        copies = self

        class DoublingClient(AsyncClient):
            async def pull_many(self, queue: str | bytes, max: int, timeout: float | None = 0) -> list[Any]:  # noqa: A002, ASYNC109
                messages = copies._kept.pop(queue, []) + await super().pull_many(queue, max, timeout=timeout)
                copies._seen += 1
                if copies._seen % 20 == 0 and messages:
                    copies._kept.setdefault(queue, []).append(messages[-1])
                return messages

        return DoublingClient(nodes, timeout_s=timeout_s)


def test_a_duplicate_delivery_is_reported_as_such(tmp_path: Path) -> None:
    result = drill(tmp_path, "[load]\nseconds = 2", Copies())
    assert result.verdict == "fail"
    assert "doubled_receipts" in found(result)
    assert all(name.startswith("doubled") for name in found(result))


def test_no_progress_is_unknown(tmp_path: Path) -> None:
    """Clients without progress prove nothing, although there is no violation."""

    class MuteClient(AsyncClient):
        def push(self, queue: str | bytes, content: Any, *, key: str | bytes | None = None) -> asyncio.Future[str]:
            return super().push("", content, key=key)

    result = drill(tmp_path, "[load]\nseconds = 1", lambda nodes, timeout_s: MuteClient(nodes, timeout_s=timeout_s))
    assert result.judgement.totals.attempted
    assert not result.judgement.totals.acknowledged
    assert result.verdict == "unknown"
    assert "no push was acknowledged" in result.reasons


def test_a_correct_cluster_passes(tmp_path: Path) -> None:
    result = drill(tmp_path, "[load]\nseconds = 2")
    assert (result.verdict, result.reasons) == ("pass", [])
    totals = result.judgement.totals
    assert totals.acknowledged == totals.delivered == totals.acked == totals.attempted > 100
    assert result.short
    assert all(result.short.values())
    assert len({digest.sha256 for digest in result.digests}) == 1
    assert len(result.digests) == 3
