"""Patterns at the node: the contents of views, the distribution of their work, and their bounds."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from lmqcluster.core import Op
from lmqcluster.core.log.commands import Match
from lmqcluster.node.process import fair_slices as turns
from lmqcluster.node.queues.patterns import patterns
from lmqcluster.node.queues.patterns import view as pattern_view
from lmqcluster.node.queues.patterns import views as pattern_views
from lmqcluster.node.queues.patterns.patterns import client_pattern
from lmqcluster.node.queues.patterns.view import View
from lmqcluster.node.queues.patterns.views import CLIENT_VIEWS_MAX, VIEWS_MAX, PatternViews
from lmqcluster.wire.errors import LmqError
from tests.property.driver import SECOND, Driver

from .command_bench import Bench, until

A, B = b"client a", b"client b"
Scenario = Callable[[Bench], Awaitable[None]]


class Matches:
    """Counts the matches of names with a client's expression."""

    def __init__(self) -> None:
        self.count = 0

    def compile(self, pattern: bytes) -> Match:
        matches = client_pattern(pattern)

        def counted(name: bytes) -> bool:
            self.count += 1
            return matches(name)

        return counted


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Matches:
    """Counts every match of a view."""
    counter = Matches()
    monkeypatch.setattr(pattern_view, "client_pattern", counter.compile)
    return counter


def run(scenario: Scenario) -> None:
    async def main() -> None:
        bench = Bench()
        await scenario(bench)
        error = LmqError("shutting_down", "the test is over")
        bench.pulls.close(error)
        bench.proposer.close(error)
        bench.views.close()

    asyncio.run(main())


def push(bench: Bench, *queues: bytes, content: bytes = b"x") -> None:
    """Push to each queue as another node."""
    bench.foreign(*([Op.PUSH, queue, None, [content], None, 0] for queue in queues))


def shown(view: View) -> list[bytes]:
    return sorted(view.queues)


async def opened(views: PatternViews, pattern: bytes, client: bytes = A) -> View:
    view = views.open(pattern, client)
    await views.settled(view)
    return view


def test_a_view_shows_existing_queues_and_follows_changes() -> None:
    async def scenario(bench: Bench) -> None:
        push(bench, b"q1", b"q2", b"other")
        view = await opened(bench.views, b"^q")
        assert shown(view) == [b"q1", b"q2"]
        push(bench, b"q3", b"more")
        bench.foreign([Op.DELETE, b"q1"], [Op.DELETE, b"other"])
        await bench.views.settled(view)
        assert shown(view) == [b"q2", b"q3"]
        bench.foreign([Op.DELETE, b"q2"], [Op.PUSH, b"q2", None, [b"y"], None, 0], [Op.DELETE, b"q3"])
        await bench.views.settled(view)
        assert [view.queues[name] for name in shown(view)] == [bench.machine.state.queues[b"q2"]]
        assert bench.views.listed == 1

    run(scenario)


def test_a_view_that_is_being_filled_follows_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Queues deleted while it is filled are not listed; new queues are listed once."""
    monkeypatch.setattr(turns, "SLICE_S", 0.0)

    async def scenario(bench: Bench) -> None:
        push(bench, *(b"q%d" % number for number in range(20)))
        view = bench.views.open(b"^q", A)
        while len(view.queues) < 5:  # noqa: ASYNC110 - what is waited for is seen by asking only
            await asyncio.sleep(0)
        assert not view.is_complete
        bench.foreign([Op.DELETE, b"q1"], [Op.DELETE, b"q15"], [Op.PUSH, b"q15", None, [b"new"], None, 0])
        push(bench, b"q20")
        await bench.views.settled(view)
        assert view.queues == {name: bench.machine.state.queues[name] for name in bench.machine.state.queues}
        assert bench.views.listed == len(view.queues) == 20

    run(scenario)


def test_views_are_rebuilt_for_another_machine() -> None:
    async def scenario(bench: Bench) -> None:
        push(bench, b"q1", b"q2")
        view = await opened(bench.views, b"^q")
        old = bench.machine
        bench.machine = type(old)(patterns.compile_pattern)
        push(bench, b"q3")
        bench.views.replaced()
        await bench.views.settled(view)
        assert (shown(view), bench.views.listed) == ([b"q3"], 1)

    run(scenario)


def test_applying_a_batch_matches_no_names(counted: Matches) -> None:
    """With 20,000 queues and 300 patterns, another client's push costs the same as without them."""

    async def scenario(bench: Bench) -> None:
        for start in range(0, 20_000, 1_000):
            push(bench, *(b"queue-%d" % number for number in range(start, start + 1_000)))
        for number in range(300):
            bench.views.open(b"[0-9]*%d$" % number, b"client %d" % (number // 100))
        before = counted.count
        for number in range(100):
            commands = [[Op.PUSH, b"victim-%d" % number, None, [b"x"], None, 0], [Op.PULL, b"queue-%d" % number, 1]]
            bench.machine.apply(1, b"victim", 1, number + 1, commands)
        assert counted.count == before
        await bench.turn()
        assert counted.count > before, "the views continue to be filled"

    run(scenario)


def test_matching_is_done_in_slices_and_clients_alternate(counted: Matches, monkeypatch: pytest.MonkeyPatch) -> None:
    """With slices of no length, one turn of the event loop matches one name for each filling view, one for
    all following ones.
    """
    monkeypatch.setattr(turns, "SLICE_S", 0.0)
    monkeypatch.setattr(pattern_views, "SLICE_S", 0.0)

    async def scenario(bench: Bench) -> None:
        push(bench, *(b"q%d" % number for number in range(200)))
        flood = [bench.views.open(b"^q.*%d" % number, A) for number in range(20)]
        view = bench.views.open(b"^q", B)
        turns_taken = 0
        while not view.is_complete:
            before = counted.count
            await asyncio.sleep(0)
            turns_taken += 1
            assert counted.count - before <= 2
        assert not any(other.is_complete for other in flood), "one client's patterns do not delay another's"
        push(bench, *(b"new%d" % number for number in range(50)))
        while not bench.views.is_settled(view):
            before = counted.count
            await asyncio.sleep(0)
            assert counted.count - before <= 3
        assert len(view.queues) == 200
        assert turns_taken >= 200

    run(scenario)


def test_one_client_cannot_use_up_the_patterns_of_the_others() -> None:
    async def scenario(bench: Bench) -> None:
        for number in range(CLIENT_VIEWS_MAX):
            bench.views.open(b"a%d" % number, A)
        with pytest.raises(LmqError, match=f"uses {CLIENT_VIEWS_MAX} different patterns") as refused:
            bench.views.open(b"one more", A)
        assert (refused.value.code, refused.value.retryable) == ("quota_exceeded", True)
        bench.views.open(b"a0", A)
        view = await opened(bench.views, b"b", B)
        assert (shown(view), len(bench.views)) == ([], CLIENT_VIEWS_MAX + 1)

    run(scenario)


def test_all_clients_together_cannot_exceed_the_nodes_bound() -> None:
    async def scenario(bench: Bench) -> None:
        for number in range(VIEWS_MAX):
            bench.views.open(b"p%d" % number, b"client %d" % (number // CLIENT_VIEWS_MAX))
        with pytest.raises(LmqError, match=f"{VIEWS_MAX} different patterns") as refused:
            bench.views.open(b"one more", b"another client")
        assert refused.value.code == "overloaded"
        assert len(bench.views) == VIEWS_MAX

    run(scenario)


def test_unused_views_make_room_and_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pattern_views, "FORGET_AFTER_S", 0.02)

    async def scenario(bench: Bench) -> None:
        push(bench, b"q")
        for number in range(3 * CLIENT_VIEWS_MAX):
            view = await opened(bench.views, b"q|%d" % number)
            bench.views.release(view)
            assert len(bench.views) <= CLIENT_VIEWS_MAX
            assert bench.views.listed <= CLIENT_VIEWS_MAX
        used = await opened(bench.views, b"used")
        await until(lambda: len(bench.views) == 1)
        assert bench.views.listed == 0
        bench.views.release(used)
        await until(lambda: not len(bench.views))

    run(scenario)


@pytest.mark.parametrize(("limit", "code"), [("CLIENT_LISTED_MAX", "quota_exceeded"), ("LISTED_MAX", "overloaded")])
def test_the_size_of_views_is_limited(limit: str, code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Filled or grown: users of the view that is too large get the reason; the other views stay."""
    monkeypatch.setattr(pattern_views, limit, 10)

    async def scenario(bench: Bench) -> None:
        push(bench, *(b"q%d" % number for number in range(8)))
        small, large = await opened(bench.views, b"^q"), bench.views.open(b"q", A)
        with pytest.raises(LmqError, match="limit") as refused:
            await bench.views.settled(large)
        assert (refused.value.code, bench.views.listed) == (code, 8)
        ended: list[str] = []
        small.on_end = lambda error: ended.append(error.code)
        push(bench, *(b"q%d" % number for number in range(8, 20)))
        with pytest.raises(LmqError, match="limit"):
            await bench.views.settled(small)
        assert (ended, bench.views.listed, len(bench.views)) == ([code], 0, 0)

    run(scenario)


def test_unused_views_are_dropped_before_a_request_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pattern_views, "LISTED_MAX", 10)

    async def scenario(bench: Bench) -> None:
        push(bench, *(b"q%d" % number for number in range(8)))
        bench.views.release(await opened(bench.views, b"^q", A))
        assert len((await opened(bench.views, b"q", B)).queues) == 8

    run(scenario)


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [(b"(", "missing"), (b"a" * 5000, "at most 4096 bytes"), (b"a{900}b{900}c{900}d{900}e{900}f{900}", "instructions")],
)
def test_a_pattern_that_would_take_long_is_refused(pattern: bytes, reason: str) -> None:
    async def scenario(bench: Bench) -> None:
        with pytest.raises(LmqError, match=reason) as refused:
            bench.views.open(pattern, A)
        assert (refused.value.code, len(bench.views)) == ("bad_pattern", 0)

    run(scenario)


class Client:
    """A puller that records its results."""

    def __init__(self) -> None:
        self.closed = False
        self.place = None
        self.waiting: set[Any] = set()
        self.got: list[Any] = []

    def may_wait(self) -> bool:
        return True

    def pulled(self, _token: Any, delivered: list[Any]) -> None:
        self.got.append([(queue, message.content) for queue, _number, _remaining, message in delivered])

    def pull_failed(self, _token: Any, error: LmqError) -> None:
        self.got.append(error.code)


def _ops(bench: Bench, sent: int = 0) -> list[int]:
    import msgpack

    return [command[0] for _, batch in bench.sent[sent:] for command in msgpack.unpackb(batch, strict_map_key=False)[3]]


def test_pull_any_finds_acknowledged_messages_although_the_replica_lags() -> None:
    """A message that is in the log before the pull's barrier, but not in the node's replica yet, is found."""

    async def scenario(bench: Bench) -> None:
        client = Client()
        assert not bench.pulls.start_any(b"^q", (client, 1, 1, 0.0), A)
        await bench.turn()
        # The log has this push before the barrier; the replica has applied neither.
        push(bench, b"q1", content=b"found")
        await bench.settle()
        assert client.got == [[(b"q1", b"found")]]
        assert _ops(bench) == [Op.BARRIER, Op.PULL_FIRST]

    run(scenario)


def test_pull_any_is_one_command_if_the_replica_shows_a_message() -> None:
    async def scenario(bench: Bench) -> None:
        push(bench, b"q2", b"q1", b"other")
        bench.views.release(await opened(bench.views, b"^q"))
        client = Client()
        assert bench.pulls.start_any(b"^q", (client, 1, 1, 0.0), A)
        await bench.settle()
        assert client.got == [[(b"q1", b"x")]]
        assert _ops(bench) == [Op.PULL_FIRST]

    run(scenario)


def test_pull_any_tries_again_after_losing_a_race() -> None:
    async def scenario(bench: Bench) -> None:
        push(bench, b"q1")
        bench.views.release(await opened(bench.views, b"^q"))
        client = Client()
        assert bench.pulls.start_any(b"^q", (client, 1, 1, 0.0), A)
        await bench.turn()
        bench.foreign([Op.PULL, b"q1", 1])
        push(bench, b"q2")
        await bench.settle()
        assert client.got == [[(b"q2", b"x")]]
        assert not bench.pulls.start_any(b"^q", (client, 1, 1, 0.0), A)
        await bench.settle()
        assert client.got[1:] == [[]]

    run(scenario)


def test_waiting_patterns_are_bounded_for_each_client_and_end_with_their_waits() -> None:
    async def scenario(bench: Bench) -> None:
        flood, client = Client(), Client()
        for number in range(CLIENT_VIEWS_MAX):
            bench.pulls.start_any(b"flood %d" % number, (flood, number, 1, None), A)
        with pytest.raises(LmqError) as refused:
            bench.pulls.start_any(b"one more", (flood, 0, 1, None), A)
        assert refused.value.code == "quota_exceeded"
        bench.pulls.start_any(b"^q", (client, 1, 1, None), B)
        await bench.settle()
        push(bench, b"q")
        await bench.settle()
        assert client.got == [[(b"q", b"x")]]
        assert bench.pulls.waiting() == CLIENT_VIEWS_MAX
        flood.closed = True
        bench.pulls.abandon(flood)
        assert bench.pulls.waiting() == 0
        bench.pulls.start_any(b"one more", (client, 1, 1, 0.0), A)
        await bench.settle()
        assert client.got[1:] == [[]]

    run(scenario)


def test_a_wait_whose_pattern_finds_too_much_ends_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pattern_views, "CLIENT_LISTED_MAX", 3)

    async def scenario(bench: Bench) -> None:
        client = Client()
        bench.pulls.start_any(b"^q", (client, 1, 1, None), A)
        await bench.settle()
        bench.foreign(*([Op.SET_PROPERTIES, b"q%d" % number, []] for number in range(5)))
        await bench.settle()
        assert (client.got, bench.pulls.waiting(), len(bench.views)) == (["quota_exceeded"], 0, 0)

    run(scenario)


def test_a_view_of_a_pattern_leaves_no_trail_beside_a_long_lease() -> None:
    """Each round lowers the queue's earliest due time and raises it again to the end of the long lease."""

    async def opened() -> View:
        return View(b".", A, asyncio.get_running_loop().create_future())

    driver, view, queue_name = Driver(), asyncio.run(opened()), b"q"
    driver.set(queue_name, timeout=3600)
    driver.push(queue_name, b"slow")
    queue = driver.machine.state.queues[queue_name]
    view.add(queue)
    driver.pull(queue_name)
    ends_us = driver.now_us + 3600 * SECOND
    for _ in range(5_000):
        driver.wait(0.001)
        driver.push(queue_name, b"x")
        view.note(queue)
        assert view.earliest() == (driver.now_us, queue)
        driver.ack(queue_name, driver.pull_one(queue_name)[1])
        assert view.earliest() == (ends_us, queue)
        assert len(view._heap) <= 2 + 64 + 1
