"""The service of a real node: repeated pushes and polls, annotations, and tasks that move messages."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from lmqcluster.core import PushFlag, Role
from lmqcluster.core.log.results import TagState
from lmqcluster.node.access.access import Principal
from lmqcluster.node.queues.polls import PollAttempt
from lmqcluster.node.queues.sending.push_items import PushItem, PushOptions
from lmqcluster.node.queues.service import QueueService
from lmqcluster.wire.errors import LmqError

from .guarded_node import guarded_node
from .programs import DEADLINE_S

Q, DEAD = b"q", b"q.dead"
ROOT = Principal("root", Role.ADMIN, b".*")
ONE, TWO = (PollAttempt(b"me", text, 60_000_000) for text in (b"1", b"2"))


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - the condition is a part of the node, which has no event for it
        await asyncio.sleep(0.01)


def on_a_node(folder: Path, main: Callable[[QueueService], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(DEADLINE_S), guarded_node(folder, admin=None) as guarded:
            await main(guarded.node.service)

    asyncio.run(bounded())


def test_a_push_under_an_attempt_is_answered_with_the_first_one(tmp_path: Path) -> None:
    async def main(service: QueueService) -> None:
        items = [PushItem(b"a", key=b"1"), PushItem(b"b", key=b"2")]
        with pytest.raises(LmqError, match="no queue"):
            await service.attempts.push(Q, items)
        assert await service.create(Q, [("retry", 5), ("max_items", 3)], {}, indexed=True)
        # All of them are sent before the log carries the first, and share commands if they have one owner.
        first, again, other, without = await asyncio.gather(
            service.attempts.push(Q, items, b"me"),
            service.attempts.push(Q, items[1:], b"me"),
            service.attempts.push(Q, items[1:], b"you"),
            service.attempts.push(Q, [PushItem(b"c")], b"you"),
        )
        assert [flag for flag, _sequence in first] == [PushFlag.STORED] * 2
        assert again == [(PushFlag.REPLAYED, first[1][1])]
        assert other[0][0] == PushFlag.STORED
        assert without == [(PushFlag.FULL, 0)]
        assert len(service.sender.state().queues[Q]) == 3

    on_a_node(tmp_path, main)


def test_a_repeated_poll_gets_the_same_messages_and_tags(tmp_path: Path) -> None:
    async def main(service: QueueService) -> None:
        await service.create(Q, [], {}, indexed=True)
        waiting = [
            asyncio.ensure_future(service.polled.poll(Q, count=1, hide_s=30, wait_s=DEADLINE_S, attempt=attempt))
            for attempt in (ONE, TWO)
        ]
        await until(lambda: service.pulls.waiting_for(Q) == 2)
        await service.push(Q, [PushItem(b"a"), PushItem(b"b")])
        first = await asyncio.gather(*waiting)
        assert sorted(polled[0].delivery.content for polled in first) == [b"a", b"b"]
        # The queue has nothing that could be polled, but a repeated poll does not wait.
        for attempt, before in zip((ONE, TWO), first, strict=True):
            again = await service.polled.poll(Q, count=1, hide_s=30, wait_s=DEADLINE_S, attempt=attempt)
            assert [(one.delivery.id, one.tag) for one in again] == [(one.delivery.id, one.tag) for one in before]
        (one,) = first[0]
        assert await service.polled.delete(Q, [(one.delivery.sequence, one.tag)]) == [TagState.VALID]
        assert await service.polled.poll(Q, count=1, hide_s=30, attempt=ONE) == []

    on_a_node(tmp_path, main)


def test_a_waiting_poll_takes_the_messages_behind_the_first_of_a_group(tmp_path: Path) -> None:
    async def main(service: QueueService) -> None:
        await service.create(Q, [("group_max_in_flight", 10)], {}, indexed=True)
        poll = service.polled.poll(Q, count=3, hide_s=30, wait_s=DEADLINE_S)
        waiting = asyncio.ensure_future(poll)
        await until(lambda: service.pulls.waiting_for(Q) == 1)
        await service.push(Q, [PushItem(b"%d" % number, options=PushOptions(group=b"g")) for number in range(4)])
        assert [one.delivery.content for one in await waiting] == [b"0", b"1", b"2"]

    on_a_node(tmp_path, main)


def test_a_queue_is_created_and_changed_with_its_annotations(tmp_path: Path) -> None:
    async def main(service: QueueService) -> None:
        assert await service.create(Q, [("max_items", 5)], {"kind": "fifo"})
        assert not await service.create(Q, [("max_items", 6)], {"kind": "other"})
        found = await service.described(Q)
        assert found.annotations == {"kind": "fifo"}
        assert time.time() - DEADLINE_S < found.created_us / 1e6 < time.time() + 1
        await service.set_properties(Q, [("max_items", None)], annotations={"kind": None, "a": "b"}, must_exist=True)
        assert ((await service.described(Q)).annotations, service.own_properties(Q)) == ({"a": "b"}, {})
        for wrong, code in (({"a": "x" * 16_384}, "too_large"), ({str(n): "" for n in range(100)}, "too_large")):
            with pytest.raises(LmqError) as caught:
                await service.set_properties(Q, [("retry", 7)], annotations=wrong)
            assert caught.value.code == code
        for name in (DEAD, b"x" * 256):
            with pytest.raises(LmqError):
                await service.set_properties(name, [("retry", 7)], must_exist=True)
        assert (service.own_properties(Q), DEAD in service.sender.state().queues) == ({}, False)

    on_a_node(tmp_path, main)


async def dead_letters(service: QueueService, count: int, queue: bytes = Q) -> None:
    await service.set_properties(queue, [("dead_letter_queue", DEAD.decode()), ("retry", 0)])
    await service.push(queue, [PushItem(b"%d" % number) for number in range(count)])
    await service.nack(queue, [one.id for one in await service.pull(queue, count=count)])


def test_a_task_moves_messages_without_further_requests(tmp_path: Path) -> None:
    async def main(service: QueueService) -> None:
        await dead_letters(service, 20)
        number = await service.move_tasks.start(DEAD, principal=ROOT)
        await until(lambda: service.sender.state().move_tasks.running(DEAD) is None)
        (task,) = await service.move_tasks.list(DEAD, ROOT)
        assert (task.number, task.status, task.moved, task.to_move) == (number, "COMPLETED", 20, 20)
        assert (task.destination, task.rate, task.failure) == (None, None, None)
        assert time.time() - DEADLINE_S < task.started_us / 1e6 < time.time() + 1
        assert [len(service.sender.state().queues[name]) for name in (Q, DEAD)] == [20, 0]

    on_a_node(tmp_path, main)


def test_a_task_is_cancelled(tmp_path: Path) -> None:
    async def main(service: QueueService) -> None:
        await dead_letters(service, 20)
        number = await service.move_tasks.start(DEAD, Q, rate=1, principal=ROOT)
        with pytest.raises(LmqError) as caught:
            await service.move_tasks.start(DEAD, principal=ROOT)
        assert caught.value.code == "conflict"
        assert await service.move_tasks.cancel(DEAD, number) <= 1
        assert (await service.move_tasks.list(DEAD, ROOT))[0].status == "CANCELLED"
        for source, wrong in ((DEAD, number), (Q, number), (b"x" * 300, 1)):
            with pytest.raises(LmqError):
                await service.move_tasks.cancel(source, wrong)

    on_a_node(tmp_path, main)


def test_a_task_needs_permission_for_where_messages_go(tmp_path: Path) -> None:
    async def main(service: QueueService) -> None:
        await dead_letters(service, 2)
        await dead_letters(service, 2, b"theirs")
        limited = Principal("limited", Role.ADMIN, b"^q")
        with pytest.raises(LmqError) as caught:
            await service.move_tasks.start(DEAD, b"theirs", principal=limited)
        assert caught.value.code == "forbidden"
        await service.move_tasks.start(DEAD, principal=limited)
        await until(lambda: service.sender.state().move_tasks.running(DEAD) is None)
        (task,) = await service.move_tasks.list(DEAD, ROOT)
        assert (task.status, task.failure, task.moved) == ("FAILED", "forbidden", 2)
        assert [len(service.sender.state().queues[name]) for name in (Q, b"theirs", DEAD)] == [2, 0, 2]

    on_a_node(tmp_path, main)


def test_what_cannot_be_started(tmp_path: Path) -> None:
    async def main(service: QueueService) -> None:
        await dead_letters(service, 1)
        for source, destination, rate, code in (
            (b"none", None, None, "queue_not_found"),
            (DEAD, b"none", None, "queue_not_found"),
            (b"x" * 256, None, None, "queue_not_found"),
            (DEAD, DEAD, None, "bad_request"),
            (DEAD, None, 0, "bad_request"),
            (DEAD, None, 10_001, "bad_request"),
        ):
            with pytest.raises(LmqError) as caught:
                await service.move_tasks.start(source, destination, rate=rate, principal=ROOT)
            assert caught.value.code == code
        with pytest.raises(LmqError):
            await service.move_tasks.list(b"none", ROOT)
        assert await service.move_tasks.list(Q, ROOT) == []

    on_a_node(tmp_path, main)
