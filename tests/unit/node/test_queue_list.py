"""The list of queues against the obvious algorithm, and the turns it leaves to other work."""

from __future__ import annotations

import asyncio
import random
import zlib

import pytest
from lmqcluster_cli.admin.queues import queues as cli_queues

from lmqcluster.core import Op
from lmqcluster.node.process.fair_slices import FairSlices
from lmqcluster.node.queues.views.info import Rates, no_rates
from lmqcluster.node.queues.views.listing import SORT_KEYS, STATES, QueueList, QueuePage, each_queue, list_queues
from lmqcluster.wire.errors import LmqError
from tests.property.driver import SECOND, Driver

COUNT = 2_500
"""More than one slice."""


@pytest.fixture(scope="module")
def driver() -> Driver:
    """Queues with few different figures, so that many are equal, and names that are not in order."""
    driver = Driver()
    chance = random.Random(7)
    names = [b"Team-%d/%05d" % (number % 3, number) for number in range(COUNT)]
    chance.shuffle(names)
    for name in names:
        driver.push(name, *[b"x" * chance.randrange(3)] * chance.randrange(3))
        driver.pull(name, chance.randrange(2))
        if chance.random() < 0.1:
            driver.wait(0.5)
        if chance.random() < 0.1:
            driver.set(name, accum=60_000)
            driver.push(name, b"part")
    return driver


def page(driver: Driver, rates: Rates = no_rates, **wanted: object) -> QueuePage:
    async def main() -> QueuePage:
        return await list_queues(lambda: driver.machine.state, QueueList(**wanted), FairSlices(), b"c", rates)  # type: ignore[arg-type]

    return asyncio.run(main())


def names(found: QueuePage) -> list[bytes]:
    return [info.name for info in found.queues]


@pytest.mark.parametrize("sort", SORT_KEYS)
@pytest.mark.parametrize("descending", [False, True])
def test_pages_put_together_are_the_sorted_list(driver: Driver, sort: str, descending: bool) -> None:
    now_us = driver.machine.state.now_us

    def rates(name: bytes) -> tuple[float, float]:
        return zlib.crc32(name) % 7, zlib.crc32(name) % 11

    rows = sorted((SORT_KEYS[sort](queue, now_us, rates), name) for name, queue in driver.machine.state.queues.items())
    if descending:
        rows = rows[::-1] if sort == "name" else sorted(rows, key=lambda row: (-row[0], row[1]))
    got: list[bytes] = []
    while len(got) < COUNT:
        found = page(driver, rates, sort=sort, descending=descending, offset=len(got), limit=700)
        assert found.total == COUNT
        got += names(found)
    assert got == [name for _, name in rows]


@pytest.mark.parametrize("state", STATES)
def test_a_list_of_queues_in_a_state(driver: Driver, state: str) -> None:
    driver.do(Op.SUSPEND, b"held", True)
    driver.push(b"leased", b"x")
    assert driver.pull(b"leased")
    driver.set(b"lost", retry=0)
    driver.push(b"lost", b"x")
    assert driver.pull(b"lost")
    driver.wait(60 * SECOND)
    found = page(driver, state=state, limit=COUNT + 9)
    chosen = {
        name for name, queue in driver.machine.state.queues.items() if STATES[state](queue, driver.machine.state.now_us)
    }
    assert found.total == len(chosen)
    assert set(names(found)) == chosen
    assert state in cli_queues.STATES
    for name in (b"held", b"leased", b"lost"):
        driver.delete(name)


@pytest.mark.parametrize("descending", [False, True])
def test_a_list_by_name_continues_after_a_name(driver: Driver, descending: bool) -> None:
    got: list[bytes] = []
    after = None
    while True:
        found = page(driver, name=b"team-1", descending=descending, after=after, limit=300)
        assert found.total == len([name for name in driver.machine.state.queues if name.startswith(b"Team-1")])
        got += names(found)
        after = found.following
        if after is None:
            break
    expected = sorted((name for name in driver.machine.state.queues if name.startswith(b"Team-1")), reverse=descending)
    assert got == expected


def test_a_list_continues_to_its_end(driver: Driver) -> None:
    count = len(driver.machine.state.queues)
    assert page(driver, limit=count).following is None
    assert page(driver, limit=count - 1).following == names(page(driver, limit=count))[-2]
    assert page(driver, offset=count + 5).queues == []


def test_text_and_pattern_must_both_match(driver: Driver) -> None:
    found = page(driver, name=b"TEAM-2", pattern=b"/0000[0-9]$")
    assert names(found) == [b"Team-2/00002", b"Team-2/00005", b"Team-2/00008"]
    assert found.total == 3
    for wanted in ({"pattern": b"("}, {"sort": "colour"}, {"sort": "size", "after": b"a"}):
        with pytest.raises(LmqError):
            page(driver, **wanted)


def test_others_get_their_turn_while_a_long_list_is_made(driver: Driver) -> None:
    async def main() -> int:
        turns = 0
        listing = asyncio.ensure_future(
            list_queues(lambda: driver.machine.state, QueueList(limit=COUNT), FairSlices(), b"c")
        )
        while not listing.done():
            await asyncio.sleep(0)
            turns += 1
        return turns

    assert asyncio.run(main()) >= 2 * (COUNT // 1_000)


def test_a_queue_may_be_deleted_while_a_list_is_made() -> None:
    driver = Driver()
    for number in range(COUNT):
        driver.push(b"%05d" % number)

    async def main() -> QueuePage:
        listing = asyncio.ensure_future(
            list_queues(lambda: driver.machine.state, QueueList(limit=5), FairSlices(), b"c")
        )
        await asyncio.sleep(0)
        driver.batch(*([Op.DELETE, b"%05d" % number] for number in range(0, COUNT, 2)))
        return await listing

    assert [int(name) for name in names(asyncio.run(main()))] == [1, 3, 5, 7, 9]


def test_queues_created_and_deleted_while_a_list_is_made_are_listed_at_most_once() -> None:
    driver = Driver()
    stay = [b"%05d" % number for number in range(0, 30_000, 10)]
    for name in stay:
        driver.push(name)
    chance = random.Random(3)

    async def main(backwards: bool) -> list[bytes]:
        listed: list[bytes] = []
        async for queue in each_queue(lambda: driver.machine.state, FairSlices(), b"c", backwards=backwards):
            listed.append(queue.name)
            name = b"%05d" % chance.choice([number for number in (chance.randrange(30_000),) if number % 10] or [7])
            driver.do(Op.DELETE, name) if name in driver.machine.state.queues else driver.push(name)
        return listed

    for backwards in (False, True):
        listed = asyncio.run(main(backwards))
        assert listed == sorted(set(listed), reverse=backwards)
        assert set(stay) <= set(listed)


def test_queues_with_dead_letters_are_found_and_counted() -> None:
    driver = Driver()
    driver.push(b"other", b"x")
    for name, label in ((b"a", b"l"), (b"b", b"")):
        driver.set(name, retry=0, dead_letter_queue="dead")
        rows = [[b"%d" % number, None, b"", None, [-1, 0, 0, 0, label, b""]] for number in range(2)]
        driver.do(Op.PUSH_ROWS, name, rows)
        driver.pull(name, 2)
    driver.push(b"dead", b"pushed by a client")
    driver.wait(60)
    driver.tick()
    found = page(driver, state="dead_letters")
    assert [(one.name, one.dead_letters, one.size) for one in found.queues] == [(b"dead", 4, 5)]
    driver.pull(b"dead", 2)
    # The client's message was first; one of the four is leased.
    assert page(driver, state="dead_letters").queues[0].dead_letters == 3
    most = page(driver, sort="dead_lettered", descending=True, limit=2)
    assert [(one.name, one.counters["dead_lettered_total"]) for one in most.queues] == [(b"a", 2), (b"b", 2)]
