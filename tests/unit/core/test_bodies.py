"""Bodies leave memory while their messages stay, and so do short queues if there are very many."""

from __future__ import annotations

import gc
import random

import msgpack
import pytest

from lmqcluster.core import Machine, Op, State
from lmqcluster.core.messages.message import loaded
from lmqcluster.core.messages.pages import PageError
from lmqcluster.core.queue.paged_tail import CHUNK_SIZES
from lmqcluster.core.queue.pager import SPARSE_MAX
from lmqcluster.core.snapshot.records import Restoration
from lmqcluster.node.process.memory import stored_bytes
from tests.property.driver import Driver, bodies, compile_pattern, numbers, over_the_wire

from .page_store import MemoryPages

Q = b"q"
SIZE = 16 << 10
COUNT = 1_000
"""These are 16 MiB, of which the first 4 are not gathered."""


def body(number: int) -> bytes:
    return b"%05d" % number + random.Random(number).randbytes(SIZE - 5)


def paged_driver() -> tuple[Driver, MemoryPages]:
    """A machine that keeps as little as possible in memory."""
    pages = MemoryPages()
    machine = Machine(compile_pattern)
    machine.state.pager.store, machine.state.pager.resident_bytes_max = pages, 0
    return Driver(machine), pages


def push(driver: Driver, count: int = COUNT, *, delay_us: int = -1) -> None:
    """Push messages with ten priorities."""
    for start in range(0, count, 20):
        rows = [
            [body(number), None, b"", None, [delay_us, 0, 0, number % 10 + 1, b"", b""]]
            for number in range(start, min(count, start + 20))
        ]
        driver.do(Op.PUSH_ROWS, Q, rows)
    driver.machine.state.pager.page_out(1_000)


def push_plain(driver: Driver, count: int) -> None:
    for number in range(count):
        driver.push(Q, body(number))


def in_order(count: int) -> list[bytes]:
    return [body(number) for priority in range(10) for number in range(priority, count, 10)]


def test_the_bodies_of_a_short_queue_stay() -> None:
    driver, pages = paged_driver()
    push(driver, 200)
    assert driver.machine.state.queues[Q].store.gathered is None
    assert not pages.payloads


def test_bodies_leave_memory_and_return_in_order() -> None:
    driver, _ = paged_driver()
    push(driver)
    common = driver.machine.state.pager
    beyond = COUNT * SIZE - CHUNK_SIZES.gather_bytes
    # Incomplete tails are in memory: ten tails of a quarter of a MiB.
    assert common.paged_body_bytes >= beyond - 10 * CHUNK_SIZES.bytes
    assert stored_bytes(driver.machine) == pytest.approx(COUNT * (SIZE + 900) - common.paged_body_bytes, rel=0.01)
    assert bodies(driver.pull(Q, COUNT)) == in_order(COUNT)
    assert common.paged_body_bytes >= beyond - 10 * CHUNK_SIZES.bytes, "reading brings nothing back for long"


def test_delayed_bodies_that_become_due_together_share_pages() -> None:
    """Each page is then read only once."""
    driver, _ = paged_driver()
    rng = random.Random(7)
    for start in range(0, 800, 20):
        rows = [
            [body(number), None, b"", None, [round(rng.random() * 600e6), 0, 0, 0, b"", b""]]
            for number in range(start, start + 20)
        ]
        driver.do(Op.PUSH_ROWS, Q, rows)
    driver.machine.state.pager.page_out(1_000)
    driver.wait(601)
    found = [number for _ in range(40) for number in numbers_read(driver)]
    assert sorted(found) == list(range(800))
    common = driver.machine.state.pager
    assert common.loads_total < 3 * common.pages_total


def numbers_read(driver: Driver) -> list[int]:
    """Pull and settle twenty messages; return their numbers."""
    delivered = driver.pull(Q, 20)
    found = [int(content[:5]) for content in bodies(delivered)]
    driver.ack(Q, *numbers(delivered))
    return found


def test_many_leased_bodies_leave_memory() -> None:
    driver, _ = paged_driver()
    push_plain(driver, 600)
    delivered = [one for _ in range(60) for one in driver.pull(Q, 10)]
    driver.machine.state.pager.page_out(1_000)
    common = driver.machine.state.pager
    assert common.paged_bytes == 0
    assert common.paged_body_bytes > 600 * SIZE - 2 * CHUNK_SIZES.gather_bytes
    assert bodies(delivered) == [body(number) for number in range(600)]
    driver.nack(Q, *numbers(delivered)[:300])
    driver.ack(Q, *numbers(delivered)[300:])
    assert driver.drain(Q) == [body(number) for number in range(300)]


def test_removed_bodies_are_not_kept() -> None:
    driver, _ = paged_driver()
    push(driver)
    delivered = driver.pull(Q, COUNT)
    driver.ack(Q, *numbers(delivered))
    common = driver.machine.state.pager
    assert (len(common), common.resident_bytes, common.idle_bytes, common.paged_body_bytes) == (0, 0, 0, 0)
    push(driver)
    driver.delete(Q)
    assert (len(common), common.resident_bytes, common.idle_bytes, common.paged_body_bytes) == (0, 0, 0, 0)
    assert driver.machine.state.totals.body_bytes == 0


def test_pages_hold_at_most_twice_what_is_needed() -> None:
    driver, _ = paged_driver()
    push(driver)
    delivered = driver.pull(Q, COUNT)
    kept = set(numbers(delivered)[::8])
    driver.ack(Q, *[number for number in numbers(delivered) if number not in kept])
    gathered = driver.machine.state.queues[Q].store.gathered
    assert gathered is not None
    assert sum(chunk.size_bytes for chunk in gathered.chunks) > 3 * sum(chunk.live_bytes for chunk in gathered.chunks)
    driver.tick(100)
    assert sum(chunk.size_bytes for chunk in gathered.chunks) <= 2 * sum(chunk.live_bytes for chunk in gathered.chunks)
    driver.wait(31)
    assert bodies(driver.pull(Q, COUNT)) == [one for one in in_order(COUNT) if one in held(delivered, kept)]


def held(delivered: list[tuple[bytes, int, int, object]], kept: set[int]) -> set[bytes]:
    return set(bodies([one for one in delivered if one[1] in kept]))


def test_a_page_is_needed_while_it_may_be_read() -> None:
    """A client is answered after its messages leave the queue, if the pull settles them."""
    driver, _ = paged_driver()
    push(driver)
    before = set(driver.machine.state.pager.pages())
    delivered = driver.do(Op.PULL, Q, COUNT, 0, True)
    assert set(driver.machine.state.pager.pages()) == before
    assert bodies(delivered) == in_order(COUNT)
    del delivered
    gc.collect()
    assert set(driver.machine.state.pager.pages()) == set()


def test_no_page_is_needed_when_all_is_settled() -> None:
    driver, _ = paged_driver()
    push(driver)
    for number in numbers(driver.pull(Q, COUNT)):
        driver.ack(Q, number)
    gc.collect()
    assert list(driver.machine.state.pager.pages()) == []


def test_a_snapshot_names_pages_of_bodies() -> None:
    driver, pages = paged_driver()
    push(driver)
    with driver.machine.freeze_view(pages=True) as view:
        rows = [over_the_wire(record) for record in view.records()]
        assert set(view.pages) == set(driver.machine.state.pager.pages())
    in_memory = COUNT * SIZE - driver.machine.state.pager.paged_body_bytes
    assert len(msgpack.packb(rows)) < in_memory + 100 * COUNT
    restored = restored_driver(rows, pages, driver.now_us)
    assert restored.machine.state.pager.loads_total == 0
    assert bodies(restored.pull(Q, COUNT)) == in_order(COUNT)


def restored_driver(rows: list[list[object]], pages: MemoryPages, now_us: int) -> Driver:
    """Return a machine restored from these rows that shares the pages."""
    state = State(compile_pattern)
    state.pager.store, state.pager.resident_bytes_max = pages, 0
    restoration = Restoration(state)
    for row in rows:
        restoration.take(row)
    restored = Driver(Machine(compile_pattern, restoration.finish()))
    restored.now_us = now_us
    return restored


def test_chunks_are_gathered_again_in_the_same_order_on_a_restored_machine() -> None:
    """More chunks become sparse at once than one batch gathers, the last one first; pages must have the same names on
    every replica.
    """
    driver, pages = paged_driver()
    push_plain(driver, 600)
    driver.machine.state.pager.page_out(1_000)
    leased = numbers(driver.pull(Q, 600))
    driver.ack(Q, *[number for place, number in enumerate(leased) if place % 3][::-1])
    assert len(driver.machine.state.pager.sparse) > 2 * SPARSE_MAX
    with driver.machine.freeze_view(pages=True) as view:
        rows = [over_the_wire(record) for record in view.records()]
    restored = restored_driver(rows, pages, driver.now_us)
    while driver.machine.state.pager.sparse:
        for machine in (driver, restored):
            machine.tick()
            machine.machine.state.pager.page_out(1_000)
        assert set(restored.machine.state.pager.pages()) == set(driver.machine.state.pager.pages())
    assert not restored.machine.state.pager.sparse


def test_a_lost_page_stops_its_reader_and_not_the_machine() -> None:
    driver, pages = paged_driver()
    push(driver)
    pages.payloads.clear()
    delivered = driver.pull(Q, COUNT)
    with pytest.raises(PageError):
        bodies(delivered)
    driver.ack(Q, *numbers(delivered)[::3])
    driver.tick(100)
    assert len(driver.machine.state.queues[Q]) == COUNT - len(delivered[::3])


def test_bodies_of_a_lost_page_are_not_gathered_without_it() -> None:
    """Other replicas would drop the page, and none could restore it; found by the simulator, subject node, profile
    paging, seed 48.
    """
    driver, pages = paged_driver()
    push(driver)
    delivered = driver.pull(Q, COUNT)
    pages.payloads.clear()
    driver.ack(Q, *numbers(delivered)[::2], *numbers(delivered)[1::3])
    with pytest.raises(PageError):
        driver.tick(100)


def test_a_body_that_goes_to_another_queue_is_read() -> None:
    driver, _ = paged_driver()
    push(driver)
    driver.do(Op.MOVE, Q, b"other", COUNT)
    assert driver.drain(b"other") == in_order(COUNT)
    assert loaded(b"as it is") == b"as it is"


def test_short_queues_leave_memory_if_there_are_very_many() -> None:
    driver, _ = paged_driver()
    common = driver.machine.state.pager
    common.sizes = CHUNK_SIZES._replace(crowd_bytes=1_000_000)
    for number in range(100):
        driver.push(b"q%02d" % number, *[b"%d" % place for place in range(1_000)])
        common.page_out(1_000)
    few, many = driver.machine.state.queues[b"q00"], driver.machine.state.queues[b"q99"]
    assert few.store.backlog is None
    assert many.store.backlog is not None
    assert [chunk.count for chunk in many.store.backlog.chunks] == [250] * 3
    assert common.paged_messages > 95 * 750
    assert driver.drain(b"q99") == [b"%d" % place for place in range(1_000)]
