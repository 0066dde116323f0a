"""The pages that a batch needs are known before it is applied, for every command."""

from __future__ import annotations

from typing import Any

import pytest

from lmqcluster.core import Op
from lmqcluster.core.log.commands import Place
from lmqcluster.core.prefetch import PAGES_MAX
from tests.property.driver import SECOND, Driver, numbers

from .page_store import MemoryPages
from .test_bodies import COUNT, Q, paged_driver, push, push_plain


def announced(driver: Driver, *commands: list[Any]) -> list[bytes]:
    return driver.machine.pages_ahead(driver.now_us, list(commands))


def long_line() -> tuple[Driver, list[bytes], int]:
    """Return a queue whose chunks are in pages; also the chunks and the number of messages before them."""
    driver, _ = paged_driver()
    push_plain(driver, 1_000)
    driver.machine.state.pager.page_out(1_000)
    queue = driver.machine.state.queues[Q]
    assert queue.store.backlog is not None
    pages = [chunk.page for chunk in queue.store.backlog.chunks]
    assert len(pages) > 10
    return driver, pages, len(queue.store.ready)


@pytest.mark.parametrize(
    "pull", [lambda count: [Op.PULL, Q, count], lambda count: [Op.PULL_FIRST, [b"x", Q], count]], ids=["one", "first"]
)
def test_a_pull_needs_the_chunks_that_it_reaches(pull: Any) -> None:
    driver, pages, ready = long_line()
    assert announced(driver, pull(ready - 1)) == []
    assert announced(driver, pull(ready)) == pages[:1], "the queue continues as soon as nothing is ready"
    assert announced(driver, pull(ready - 1), pull(1)) == pages[:1]
    assert announced(driver, pull(ready + 20)) == pages[:2]
    assert announced(driver, pull(1 << 40)) == pages[:PAGES_MAX]


@pytest.mark.parametrize(
    "command",
    [
        [Op.MOVE, Q, b"other", 10_000],
        [Op.PURGE, Q, 10_000],
        [Op.PULL, Q, 10_000, 0, True],
        [Op.RESERVE, b"s", 1, Q, True, 10_000, 1_000_000],
        [Op.RESERVE, b"s", 1, [Q], True, 10_000, 1_000_000, 0, b""],
    ],
    ids=lambda command: Op(command[0]).name,
)
def test_other_commands_that_take_messages_need_them_too(command: list[Any]) -> None:
    driver, pages, _ = long_line()
    assert announced(driver, command) == pages[:PAGES_MAX]


def test_commands_that_take_no_message_need_no_page() -> None:
    driver, _, _ = long_line()
    assert (
        announced(driver, [Op.PUSH, Q, None, [b"x"] * 1_000, None, 0], [Op.PURGE, Q, 0], [Op.DELETE, Q], [Op.BARRIER])
        == []
    )


def test_a_push_that_discards_old_messages_needs_the_next_chunks() -> None:
    driver, pages, ready = long_line()
    driver.do(Op.SET_PROPERTIES, Q, [["max_items", 1_000], ["discard_old_when_full", True]])
    assert announced(driver, [Op.PUSH, Q, None, [b"x"] * (ready - 1), None, 0]) == []
    assert announced(driver, [Op.PUSH, Q, None, [b"x"] * ready, None, 0]) == pages[:1]


def test_a_chunk_of_bodies_of_which_most_has_left_is_needed_by_the_next_batch() -> None:
    driver, store = paged_driver()
    push(driver)
    delivered = numbers(driver.pull(Q, COUNT))
    driver.machine.state.pager.page_out(1_000)
    assert announced(driver) == []
    driver.ack(Q, *[number for number in delivered if number % 4])
    needed = announced(driver)
    assert needed
    store.payloads = {page: payload for page, payload in store.payloads.items() if page in needed}
    driver.batch()
    assert announced(driver) != needed


def test_a_leased_message_that_goes_back_to_a_long_line_needs_its_body() -> None:
    driver, _ = paged_driver()
    push_plain(driver, 2_000)
    delivered = numbers(driver.pull(Q, 900))
    driver.machine.state.pager.page_out(1_000)
    queue = driver.machine.state.queues[Q]
    last = delivered[-100]
    body = queue.store.leases.messages[last].content
    assert body.missing() is not None
    page = body.missing().page
    nack, steps = [Op.NACK, Q, [last]], [[Op.NACK, Q, [last], int(Place.TAIL), 0]]
    assert announced(driver, nack) == announced(driver, [Op.TRANSACTION, steps]) == [page]


def test_the_line_may_become_long_with_the_batch_that_gives_a_message_back() -> None:
    driver, store = paged_driver()
    push_plain(driver, 2_000)
    delivered = numbers(driver.pull(Q, 2_000))
    driver.machine.state.pager.page_out(1_000)
    assert driver.machine.state.queues[Q].store.backlog is None
    batch = [[Op.PUSH, Q, None, [b"x"] * 5_000, None, 0], [Op.NACK, Q, delivered[:20]]]
    needed = set(announced(driver, *batch))
    assert needed
    assert loaded_by(driver, store, *batch) == needed


def bodies_with(driver: Driver, **options: Any) -> list[int]:
    """Return the numbers of leased messages with bodies in pages, in a queue with these options."""
    driver.do(Op.SET_PROPERTIES, Q, [[name, value] for name, value in options.items()])
    push(driver)
    delivered = numbers(driver.pull(Q, COUNT))
    driver.machine.state.pager.page_out(1_000)
    return delivered


def loaded_by(driver: Driver, store: MemoryPages, *commands: list[Any]) -> set[bytes]:
    """Apply a batch; return the pages that it has loaded."""
    found: set[bytes] = set()
    load = store.load

    def noting(page: bytes) -> list[Any]:
        found.add(page)
        return load(page)

    store.load = noting  # type: ignore[method-assign]
    driver.batch(*commands)
    return found


def test_a_dead_lettered_message_needs_its_body() -> None:
    driver, store = paged_driver()
    delivered = bodies_with(driver, retry=0, dead_letter_queue="dead", timeout=30)
    nack = [Op.NACK, Q, delivered[:20]]
    needed = set(announced(driver, nack))
    assert needed
    assert loaded_by(driver, store, nack) == needed


@pytest.mark.parametrize(
    "options", [{"retry": 0, "dead_letter_queue": "dead", "timeout": 30}, {}], ids=["dead", "again"]
)
def test_when_leases_end_only_those_that_leave_need_their_bodies(options: dict[str, Any]) -> None:
    driver, store = paged_driver()
    bodies_with(driver, **options)
    assert announced(driver) == []
    driver.now_us += 31_000_000
    needed = set(announced(driver))
    assert bool(needed) == bool(options)
    assert loaded_by(driver, store) >= needed


OWNER = b"owner"


def session_with(driver: Driver, count: int) -> tuple[int, list[int]]:
    """Return the numbers of a session and its deliveries, bodies in pages, from a queue without redelivery."""
    driver.do(Op.SET_PROPERTIES, Q, [["retry", 0], ["dead_letter_queue", "dead"]])
    push(driver)
    session = driver.do(Op.OPEN_SESSION, 30_000_000, OWNER)
    delivered = numbers(driver.do(Op.PULL_IN_SESSION, Q, count, 0, session, 1, -1, OWNER))
    driver.machine.state.pager.page_out(1_000)
    return session, delivered


def test_messages_released_by_an_expired_session_need_their_bodies() -> None:
    driver, store = paged_driver()
    session_with(driver, 50)
    assert announced(driver) == []
    driver.now_us += 31_000_000
    needed = set(announced(driver))
    assert needed
    assert loaded_by(driver, store) == needed


@pytest.mark.parametrize(
    "command",
    [lambda session: [Op.END_SESSION, session, OWNER], lambda session: [Op.LEAVE_QUEUE, Q, session, OWNER]],
    ids=["end", "leave"],
)
def test_messages_released_by_a_session_need_their_bodies(command: Any) -> None:
    driver, store = paged_driver()
    session, _ = session_with(driver, 50)
    needed = set(announced(driver, command(session)))
    assert needed
    assert loaded_by(driver, store, command(session)) == needed
    assert announced(driver, command(session + 1)) == []


def test_moved_and_redriven_messages_need_their_bodies() -> None:
    driver, store = paged_driver()
    push(driver)
    move = [Op.MOVE, Q, b"other", 100]
    needed = set(announced(driver, move))
    assert needed
    assert loaded_by(driver, store, move) == needed


def test_moved_messages_of_fair_groups_need_their_bodies() -> None:
    driver, store = paged_driver()
    pager = driver.machine.state.pager
    pager.sizes = pager.sizes._replace(body=1, gather_bytes=0, bytes=1)
    driver.set(Q, group_mode="fair")
    rows = [[b"%d" % number, None, b"", None, [-1, 0, 0, 0, b"", b"g%d" % (number % 2)]] for number in range(6)]
    driver.do(Op.PUSH_ROWS, Q, rows)
    pager.page_out(1_000)
    move = [Op.MOVE, Q, b"other", 4]
    needed = set(announced(driver, move))
    assert len(needed) == 4
    assert loaded_by(driver, store, move) == needed


def test_redriven_messages_that_are_named_need_their_bodies_and_no_others() -> None:
    driver, store = paged_driver()
    pager = driver.machine.state.pager
    pager.sizes = pager.sizes._replace(body=1, gather_bytes=0, bytes=1)
    driver.set(Q, retry=0, dead_letter_queue="dead")
    driver.do(Op.PUSH, Q, None, [b"one", b"two", b"three"], None, 0)
    driver.nack(Q, *numbers(driver.pull(Q, 3)))
    pager.page_out(1_000)
    _first, second, third = [message.sequence for message in driver.machine.state.queues[b"dead"].store.rich.waiting]
    redrive = [Op.REDRIVE, b"dead", b"", b"", 2, [third, second]]
    needed = announced(driver, redrive)
    assert len(needed) == 2
    assert announced(driver, [Op.REDRIVE, b"dead", b"", b"", 2, [third, None, "text", 1 << 80, -1]]) == needed[1:]
    assert loaded_by(driver, store, redrive) == set(needed)


@pytest.mark.parametrize(
    "command",
    [
        [Op.MOVE, Q, b"other", None],
        [Op.REDRIVE, Q, b"", "text", 5],
        [Op.REDRIVE, Q],
        [None],
        [[]],
        [{}],
        [True],
        [1 << 70],
        [Op.PULL],
        [Op.PULL, Q],
        [Op.PULL, Q, None],
        [Op.PULL, Q, -5],
        [Op.PULL, Q, True],
        [Op.PULL, [[]], 1 << 40],
        [Op.PULL_FIRST, [Q, None, {}], 1.5],
        [Op.PUSH, None, None, None],
        [Op.PUSH, Q, None, 7],
        [Op.NACK, Q],
        [Op.NACK, {}, [1]],
        [Op.NACK, Q, [[], {}, "1"]],
        [Op.TRANSACTION],
        [Op.TRANSACTION, [None, [], [[]], [Op.NACK], 4]],
        [Op.TRANSACTION, [[Op.TRANSACTION, [[Op.PULL, Q, 1 << 40]]]]],
        [Op.RESERVE, None, None, None, None, None],
        [Op.END_SESSION],
        [Op.END_SESSION, None],
        [Op.END_SESSION, True],
        [Op.LEAVE_QUEUE, Q, [[]]],
        [Op.PULL_IN_SESSION, Q, 0, 0, 1],
        [Op.PULL_IN_SESSION, Q, 0, 0, 1, 1, None],
        [Op.PULL_IN_SESSION, Q, 0, 0, 1, 1, -1],
    ],
    ids=repr,
)
def test_a_malformed_command_needs_nothing_and_stops_no_other(command: list[Any]) -> None:
    driver, _, _ = long_line()
    assert announced(driver, command) == []


def test_a_pull_needs_the_bodies_of_expired_messages_that_it_forwards() -> None:
    """The second message of the group has expired, but is held until the lease of the first ends with the batch."""
    driver, store = paged_driver()
    pager = driver.machine.state.pager
    pager.sizes = pager.sizes._replace(body=1, gather_bytes=0, bytes=1)
    driver.set(Q, timeout=30, retry=0, dead_letter_queue="dead")
    rows = [[b"%d" % number, None, b"", None, [-1, 0, 0, 0, b"", b"g"]] for number in range(2)]
    driver.do(Op.PUSH_ROWS, Q, rows)
    driver.wait(15)
    driver.pull_one(Q)
    pager.page_out(1_000)
    driver.wait(29)
    driver.set(Q, max_age=10, expire_to_queue="expired")
    driver.wait(1)
    needed = set(announced(driver, [Op.PULL, Q, 1]))
    assert len(needed) == 2
    assert loaded_by(driver, store, [Op.PULL, Q, 1]) == needed
    assert driver.size(b"expired") + driver.size(b"dead") == 2


@pytest.mark.parametrize("ends_before", [True, False])
@pytest.mark.parametrize("group", [b"", b"g"])
def test_a_poll_needs_the_bodies_of_messages_that_are_used_up(group: bytes, ends_before: bool) -> None:
    """Their leases end with an earlier batch, and new messages are in another line behind them, or with the same one."""
    driver, store = paged_driver()
    pager = driver.machine.state.pager
    pager.sizes = pager.sizes._replace(body=1, gather_bytes=0, bytes=1)
    own = [["group_mode", "fair"], ["retry", 1_000], ["max_deliveries", 1], ["dead_letter_queue", "dead"]]
    driver.do(Op.CREATE, b"dead")
    driver.do(Op.CREATE, Q, b"", own, True, [[b"sqs.kind", b"standard"]])
    rows = [[b"%d" % number, None, b"", None, [-1, 0, 0, 0, b"", group]] for number in range(3)]
    driver.do(Op.PUSH_ATTEMPTS, Q, rows, b"")
    poll = [Op.POLL, Q, 3, 30 * SECOND, False, False]
    assert len(driver.do(*poll)) == 3
    pager.page_out(1_000)
    driver.wait(30)
    if ends_before:
        driver.push(Q, b"new", b"new", b"new")
    needed = set(announced(driver, poll))
    assert len(needed) == 3
    assert loaded_by(driver, store, poll) == needed
    assert driver.size(b"dead") == 3


def test_a_batch_needs_the_chunks_of_messages_that_reach_the_maximum_age() -> None:
    driver, store = paged_driver()
    driver.set(Q, max_age=10, expire_to_queue="expired")
    push_plain(driver, 1_000)
    driver.machine.state.pager.page_out(1_000)
    assert announced(driver) == []
    driver.wait(10)
    needed = set(announced(driver))
    assert needed
    assert loaded_by(driver, store) == needed
    assert driver.size(b"expired") == 1_000
