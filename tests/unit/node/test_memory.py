"""The memory that counts for `memory_bytes_max`, and the refusals beyond it."""

from __future__ import annotations

import asyncio

import pytest

from lmqcluster.core import Op
from lmqcluster.core.owners.quotas import Kind, Quotas
from lmqcluster.node.process.memory import MESSAGE_OVERHEAD_BYTES, QUEUE_BYTES, stored_bytes
from lmqcluster.node.queues.service import QueueService
from lmqcluster.wire.errors import LmqError
from tests.property.work import counted

from .command_bench import Bench

HOOKS = [["pre_http_push", [["lmq_hook_preserve_header", [f"x-{number:04}" for number in range(60)]]]]]


def _service(bench: Bench, memory_bytes_max: int) -> QueueService:
    parts = (bench.proposer, bench.pulls, lambda: bench.machine.state, bench.views, bench.turns)
    return QueueService(*parts, message_bytes_max=1 << 20, memory_bytes_max=memory_bytes_max)


def test_empty_queues_parts_and_properties_count() -> None:
    async def scenario() -> None:
        bench = Bench()
        bench.foreign(*([Op.PULL, b"q%d" % number, 1] for number in range(100)))
        assert stored_bytes(bench.machine) == 100 * QUEUE_BYTES
        bench.foreign([Op.SET_PROPERTIES, b"q1", [[b"hooks", HOOKS]]])
        properties = stored_bytes(bench.machine) - 100 * QUEUE_BYTES
        assert properties == bench.machine.state.totals.property_bytes > 60 * 64
        bench.foreign([Op.SET_PROPERTIES, b"q2", [[b"accum", 60_000]]])
        before = stored_bytes(bench.machine)
        bench.foreign(*([Op.PUSH, b"q2", None, [b"part"], None, 0] for _ in range(10)))
        assert stored_bytes(bench.machine) - before == 10 * (4 + MESSAGE_OVERHEAD_BYTES)
        bench.foreign(*([Op.DELETE, b"q%d" % number] for number in range(100)))
        assert stored_bytes(bench.machine) == 0

    asyncio.run(scenario())


def test_the_sum_does_not_visit_the_queues() -> None:
    async def scenario() -> None:
        bench = Bench()
        bench.foreign(*([Op.PUSH, b"q%d" % number, None, [b"x"], None, 0] for number in range(5_000)))
        with counted() as work:
            stored_bytes(bench.machine)
        assert work.lines < 50

    asyncio.run(scenario())


def test_over_the_limit_new_queues_and_properties_are_refused_too() -> None:
    async def scenario() -> None:
        bench = Bench()
        service = _service(bench, 10 * QUEUE_BYTES)
        bench.foreign(*([Op.PULL, b"q%d" % number, 1] for number in range(10)))
        service.sender.stored_bytes = stored_bytes(bench.machine)
        service.sender.check_name(b"new")
        bench.foreign([Op.PULL, b"one more", 1])
        service.sender.stored_bytes = stored_bytes(bench.machine)
        service.sender.check_name(b"q1")
        for refused in (
            lambda: service.sender.check_name(b"new"),
            service.sender.check_room,
            lambda: service.sender.check_push(1),
        ):
            with pytest.raises(LmqError, match="delete queues") as error:
                refused()
            assert error.value.code == "overloaded"
        with pytest.raises(LmqError, match="delete queues"):
            await service.set_properties(b"q1", [("retry", 1)])
        assert not bench.sent

    asyncio.run(scenario())


def test_copies_are_counted_before_they_are_made() -> None:
    async def scenario() -> None:
        service = _service(Bench(), 1_000_000)
        service.sender.check_push(1_000, copies=100)
        with pytest.raises(LmqError, match="memory_bytes_max"):
            service.sender.check_push(1_000, copies=1_000)

    asyncio.run(scenario())


def test_a_queue_unknown_to_the_node_is_created_for_its_owner_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Quotas, "LIMITS", {**Quotas.LIMITS, Kind.QUEUES: 2})

    async def scenario() -> None:
        bench = Bench()
        service = _service(bench, 1 << 30)
        for queue in (b"q1", b"q2", b"q1"):
            service.sender.check_name(queue, b"owner")
            await bench.settle()
        assert [queue.owner for queue in bench.machine.state.queues.values()] == [b"owner", b"owner"]
        assert len(bench.sent) == 2, "nothing is sent for a queue that is there"
        with pytest.raises(LmqError, match="the quota is 2") as refused:
            service.sender.check_name(b"q3", b"owner")
        assert refused.value.code == "quota_exceeded"
        service.sender.check_name(b"q1", b"owner")
        service.sender.check_name(b"q3", b"other")

    asyncio.run(scenario())
