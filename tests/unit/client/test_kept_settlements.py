"""Acks, nacks and similar calls that `AsyncClient` continues after their callers got an error or were cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from lmqcluster import AsyncClient, Client, LmqError, Message, Outcome
from lmqcluster.client.transport.calls import Persistence
from lmqcluster.client.transport.kept_settlements import KeptSettlements
from lmqcluster.testing import MemoryCluster

from .client_cluster import Fate, ModelCluster, Request, ScriptedNode, async_test
from .scripts import client_of

TIMEOUT_S = 0.2
Settle = Callable[[AsyncClient, Message], Awaitable[object]]


async def _in_transaction(client: AsyncClient, message: Message) -> None:
    async with client.transaction() as transaction:
        transaction.push("other", 1)
        transaction.done(message)


WAYS: dict[str, tuple[str, Settle]] = {
    "ack": ("done", lambda _, message: message.ack()),
    "nack": ("release", lambda _, message: message.nack()),
    "put back": ("put_back", lambda _, message: message.put_back()),
    "acks": ("done", lambda client, message: client.done_many("q", [message.id])),
    "transaction": ("done", _in_transaction),
}


class Outage:
    """During the outage, requests that settle or renew meet this fate."""

    def __init__(self, fate: Fate) -> None:
        self.fate = fate
        self.lasts = True

    def __call__(self, request: Request) -> Fate:
        affected = request.method.startswith(("done", "release", "retain", "put_back", "transaction"))
        return self.fate if self.lasts and affected else Fate.ANSWER


async def _message(cluster: ModelCluster, client: AsyncClient) -> Message:
    cluster.push(b"q", [0], None, 0)
    message = await client.pull("q")
    assert message is not None
    return message


async def _settled(node: ScriptedNode, verb: str, message: Message) -> None:
    expected = (verb, message.id.encode())
    async with asyncio.timeout(60):
        await node.until(lambda: expected in node.cluster.settled)


@pytest.mark.parametrize("fate", [Fate.REFUSE, Fate.DROP_BEFORE, Fate.STALL])
@pytest.mark.parametrize("way", WAYS)
@async_test
async def test_a_settlement_continues_after_its_caller_got_an_error(way: str, fate: Fate) -> None:
    cluster, outage = ModelCluster(), Outage(fate)
    verb, settle = WAYS[way]
    async with ScriptedNode(cluster, outage) as node, client_of(node, timeout_s=TIMEOUT_S) as client:
        message = await _message(cluster, client)
        with pytest.raises(LmqError, match="goes on") as raised:
            await settle(client, message)
        assert raised.value.outcome is Outcome.UNKNOWN
        outage.lasts = False
        await _settled(node, verb, message)
        assert client.settlements_given_up == 0


@async_test
async def test_a_settlement_continues_after_its_caller_was_cancelled() -> None:
    cluster, outage = ModelCluster(), Outage(Fate.REFUSE)
    async with ScriptedNode(cluster, outage) as node, client_of(node) as client:
        message = await _message(cluster, client)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await message.ack()
        outage.lasts = False
        await _settled(node, "done", message)


@async_test
async def test_a_settlement_continues_when_no_node_could_be_reached() -> None:
    cluster = ModelCluster()
    node = ScriptedNode(cluster)
    await node.start()
    async with client_of(node, timeout_s=TIMEOUT_S) as client:
        message = await _message(cluster, client)
        await node.stop()
        with pytest.raises(LmqError):
            await message.ack()
        await node.start()
        await _settled(node, "done", message)
    await node.stop()


@pytest.mark.parametrize("applied", [True, False])
@async_test
async def test_a_repeated_call_gets_the_true_outcome(applied: bool) -> None:
    cluster, outage = ModelCluster(), Outage(Fate.HOLD if applied else Fate.REFUSE)
    async with ScriptedNode(cluster, outage) as node, client_of(node, timeout_s=TIMEOUT_S) as client:
        message = await _message(cluster, client)
        with pytest.raises(LmqError):
            await message.ack()
        outage.lasts = False
        await _settled(node, "done", message)
        assert await message.ack() is True
        assert await message.nack() is False


@async_test
async def test_an_extend_and_a_transaction_that_settles_nothing_end_with_their_callers() -> None:
    cluster, outage = ModelCluster(), Outage(Fate.REFUSE)
    async with ScriptedNode(cluster, outage) as node, client_of(node, timeout_s=TIMEOUT_S) as client:
        message = await _message(cluster, client)
        with pytest.raises(LmqError) as raised:
            await message.extend()
        assert "goes on" not in str(raised.value)
        with pytest.raises(LmqError) as raised:
            async with client.transaction() as transaction:
                transaction.push("other", 1)
        assert "goes on" not in str(raised.value)
        outage.lasts = False
        assert await client.push("other", 2) == "ok"
        assert (cluster.settled, cluster.stored) == ([], [0, 2])


@async_test
async def test_a_waiting_caller_gets_the_outcome() -> None:
    cluster, outage = ModelCluster(), Outage(Fate.REFUSE)
    async with ScriptedNode(cluster, outage) as node, client_of(node, timeout_s=TIMEOUT_S) as client:
        message = await _message(cluster, client)
        acking = asyncio.ensure_future(client._settling(Persistence.UNTIL_KNOWN).done("q", message.id))
        done, _ = await asyncio.wait([acking], timeout=5 * TIMEOUT_S)
        assert not done
        outage.lasts = False
        assert await acking is True


@async_test
async def test_closing_waits_for_continued_settlements() -> None:
    cluster, outage = ModelCluster(), Outage(Fate.REFUSE)
    async with ScriptedNode(cluster, outage) as node:
        client = client_of(node, timeout_s=TIMEOUT_S)
        message = await _message(cluster, client)
        with pytest.raises(LmqError):
            await message.ack()
        closing = asyncio.ensure_future(client.close(60))
        await asyncio.sleep(0)
        outage.lasts = False
        await closing
        assert cluster.settled == [("done", message.id.encode())]
        assert client.settlements_given_up == 0


@async_test
async def test_closing_ends_at_its_deadline(caplog: pytest.LogCaptureFixture) -> None:
    cluster, outage = ModelCluster(), Outage(Fate.REFUSE)
    async with ScriptedNode(cluster, outage) as node:
        client = client_of(node, timeout_s=TIMEOUT_S)
        message = await _message(cluster, client)
        with pytest.raises(LmqError):
            await message.ack()
        await client.close(0.1)
        assert client.settlements_given_up == 1
        assert [record.message for record in caplog.records if "given up" in record.message]


@async_test
async def test_too_many_are_abandoned_oldest_first(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(KeptSettlements, "COUNT_MAX", 3)
    cluster, outage = ModelCluster(), Outage(Fate.REFUSE)
    async with ScriptedNode(cluster, outage) as node, client_of(node, timeout_s=TIMEOUT_S) as client:
        cluster.push(b"q", list(range(5)), None, 0)
        messages = await client.pull_many("q", 5)
        acks = [client.done_many("q", [message.id]) for message in messages]
        errors = await asyncio.gather(*acks, return_exceptions=True)
        assert all(isinstance(error, LmqError) for error in errors)
        assert client.settlements_given_up == 2
        outage.lasts = False
        for message in messages[2:]:
            await _settled(node, "done", message)
        assert await client.push("other", 1) == "ok"
        assert len(cluster.settled) == 3
        assert any("given up" in record.message for record in caplog.records)


def test_sessions_end_when_their_client_has_abandoned_a_settlement() -> None:
    with MemoryCluster() as cluster:
        client = cluster.client()
        client.push("q", 1)
        with client.session(0.6) as session:
            assert session.pull("q", 0) is not None
            client._client._session.kept._count(1, "for a test")
            client._run(session._session.wait_lost)
            assert session.lost
            cluster.advance(1)
            # Messages of a session that is not renewed are redelivered.
            assert client.pull("q", 60) is not None


@pytest.mark.parametrize("direct", [False, True])
def test_the_blocking_client_continues_too(direct: bool) -> None:
    cluster, outage = ModelCluster(), Outage(Fate.STALL)

    async def serve(started: asyncio.Future[ScriptedNode], stop: asyncio.Event) -> None:
        async with ScriptedNode(cluster, outage) as node:
            started.set_result(node)
            await stop.wait()

    async def run() -> None:
        started: asyncio.Future[ScriptedNode] = asyncio.get_running_loop().create_future()
        stop = asyncio.Event()
        server = asyncio.create_task(serve(started, stop))
        node = await started
        client = await asyncio.to_thread(Client, node.address, timeout_s=0.5, heartbeat_s=0.2)
        cluster.push(b"q", [0], None, 0)

        def work() -> None:
            for _ in range(10 if direct else 1):
                client.ping()
            message = client.pull("q")
            assert message is not None
            with pytest.raises(LmqError, match="goes on"):
                message.ack()
            outage.lasts = False

        await asyncio.to_thread(work)
        async with asyncio.timeout(60):
            await node.until(lambda: len(cluster.settled) == 1)
        await asyncio.to_thread(client.close)
        stop.set()
        await server

    asyncio.run(run())
