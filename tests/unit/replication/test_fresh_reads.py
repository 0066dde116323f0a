"""Reads without a log entry: the required answers, and the index that is awaited."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from lmqcluster.replication.base.membership import PeerNode
from lmqcluster.replication.raft import read_index as fresh_reads
from lmqcluster.replication.raft.read_index import ReadIndex


class Member:
    """A member with a log up to `last`, fully applied unless specified otherwise."""

    def __init__(self, name: str, names: str, last: int, net: dict[str, Member]) -> None:
        self.name, self.names, self.last, self.net = name, names, last, net
        self.applied = last
        self.recovering = False
        self.reads = ReadIndex(name, self, lambda: self.last, self.send)  # type: ignore[arg-type]
        self.sent = 0
        net[name] = self

    def members(self) -> dict[str, str]:
        return dict.fromkeys(self.names, "")

    def is_recovering(self) -> bool:
        return self.recovering

    def applied_index(self) -> int:
        return self.applied

    def send(self, node: PeerNode, message: dict[str, Any]) -> bool:
        other = self.net.get(node.id)
        self.sent += 1
        if other is None:
            return False
        loop = asyncio.get_running_loop()
        if message["type"] == "where":
            loop.call_soon(other.reads.asked, PeerNode(self.name), message["round"])
        else:
            loop.call_soon(other.reads.answered, self.name, message["round"], message["last"], message["members"])
        return True


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fresh_reads, "TIMEOUT_S", 60.0)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch, patient: None) -> None:
    monkeypatch.setattr(fresh_reads, "TIMEOUT_S", 0.05)


def run(scenario: Callable[[dict[str, Member]], Any]) -> Any:
    async def within() -> Any:
        return await scenario({})

    return asyncio.run(within())


def test_a_node_that_is_alone_is_fresh() -> None:
    async def scenario(net: dict[str, Member]) -> None:
        alone = Member("a", "a", 7, net)
        assert await alone.reads.fresh()
        assert alone.sent == 0

    run(scenario)


def test_it_waits_for_the_longest_log_of_a_majority() -> None:
    async def scenario(net: dict[str, Member]) -> None:
        asker, _, _ = Member("a", "abc", 5, net), Member("b", "abc", 9, net), Member("c", "abc", 9, net)
        reading = asyncio.ensure_future(asker.reads.fresh())
        for _ in range(10):
            await asyncio.sleep(0)
        assert not reading.done()
        asker.applied = 8
        asker.reads.applied()
        await asyncio.sleep(0)
        assert not reading.done()
        asker.applied = 9
        asker.reads.applied()
        assert await reading

    run(scenario)


@pytest.mark.usefixtures("quick")
def test_without_a_majority_it_is_not_fresh() -> None:
    async def scenario(net: dict[str, Member]) -> None:
        assert not await Member("a", "abc", 5, net).reads.fresh()

    run(scenario)


def test_members_that_have_forgotten_or_know_another_set_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(net: dict[str, Member]) -> None:
        asker, other = Member("a", "abc", 5, net), Member("b", "abc", 5, net)
        other.recovering = True
        monkeypatch.setattr(fresh_reads, "TIMEOUT_S", 0.05)
        assert not await asker.reads.fresh()
        other.recovering, other.names = False, "abcd"
        assert not await asker.reads.fresh()
        other.names = "abc"
        monkeypatch.setattr(fresh_reads, "TIMEOUT_S", 60.0)
        assert await asker.reads.fresh()
        asker.recovering = True
        monkeypatch.setattr(fresh_reads, "TIMEOUT_S", 0.05)
        assert not await asker.reads.fresh()

    run(scenario)


def test_reads_of_one_turn_share_a_question_and_later_ones_the_next() -> None:
    async def scenario(net: dict[str, Member]) -> None:
        asker, _ = Member("a", "ab", 5, net), Member("b", "ab", 5, net)
        together = [asyncio.ensure_future(asker.reads.fresh()) for _ in range(100)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        later = [asyncio.ensure_future(asker.reads.fresh()) for _ in range(100)]
        assert all(await asyncio.gather(*together, *later))
        assert asker.sent == 2

    run(scenario)


@pytest.mark.usefixtures("quick")
def test_an_answer_to_an_earlier_question_does_not_count() -> None:
    async def scenario(net: dict[str, Member]) -> None:
        asker = Member("a", "ab", 5, net)
        reading = asyncio.ensure_future(asker.reads.fresh())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        asker.reads.answered("b", 0, 5, fresh_reads.fingerprint("ab"))
        assert not await reading

    run(scenario)
