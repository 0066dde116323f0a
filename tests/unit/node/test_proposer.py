"""Group commit: when batches are sent, resent and abandoned, and the results for their senders."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from typing import Any

import msgpack
import pytest

from lmqcluster.core.log.commands import Ack, Bind, Pull, Push
from lmqcluster.node.commit import proposer as module
from lmqcluster.node.commit.proposer import PendingCommand
from lmqcluster.wire.errors import LmqError
from lmqcluster.wire.limits import BATCH_BYTES_MAX
from lmqcluster.wire.parts import LARGE_BYTES

from .command_bench import INCARNATION, ORIGIN, Bench, Recorder, until

Scenario = Callable[[Bench, Recorder], Awaitable[None]]


def run(scenario: Scenario) -> None:
    """Run a scenario on a new bench, and close the bench."""

    async def main() -> None:
        bench = Bench()
        await scenario(bench, Recorder())
        bench.proposer.close(LmqError("shutting_down", "the test is over"))

    asyncio.run(main())


def push(
    bench: Bench, sink: Any, content: bytes, ticket: object = None, producer: bytes | None = None
) -> PendingCommand:
    """Add a push as a separate command."""
    pending = PendingCommand(Push(b"q", None, [content], producer, 1), [ticket], sink)
    bench.proposer.add(pending, len(content) + 64)
    return pending


async def three_batches(bench: Bench, sink: Any) -> None:
    """Put three batches in flight, of one, one and two pushes, because each holds as much as those before it."""
    for numbers in ((0,), (1,), (2, 3)):
        for number in numbers:
            push(bench, sink, b"%d" % number, number)
        await bench.turn()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lowers time limits so that a test can wait for them."""
    monkeypatch.setattr(module, "SWEEP_S", 0.005)
    monkeypatch.setattr(module, "RESEND_AFTER_S", 0.02)
    monkeypatch.setattr(module, "NO_LEADER_AFTER_S", 0.05)
    monkeypatch.setattr(module, "UNKNOWN_AFTER_S", 0.1)


def test_commands_of_one_turn_share_a_batch_and_results_find_their_sinks() -> None:
    async def scenario(bench: Bench, sink: Recorder) -> None:
        other = Recorder()
        for number in range(3):
            push(bench, sink, b"%d" % number, number)
        bench.proposer.add(PendingCommand(Pull(b"q", 1), ["pull"], other), 64)
        assert bench.sent == [], "nothing is sent before the turn ends"
        await bench.turn()
        assert bench.sequences == [1]
        origin, incarnation, sequence, commands = msgpack.unpackb(bench.sent[0][1])
        assert (origin, incarnation, sequence, len(commands)) == (ORIGIN, INCARNATION, 1, 4)
        assert sink.outcomes == [], "there is no result before the batch is applied"
        assert bench.apply(0) == "applied"
        assert sink.outcomes == [("ok", [0], [0]), ("ok", [1], [0]), ("ok", [2], [0])]
        assert other.codes == ["ok"]

    run(scenario)


def test_a_batch_ends_with_the_command_that_makes_many_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few bytes, but they take as long to apply as many."""
    # A machine that stalls for a moment must not resend them.
    monkeypatch.setattr(module, "RESEND_AFTER_S", 600.0)

    async def scenario(bench: Bench, sink: Recorder) -> None:
        for number in range(100):
            bench.proposer.add(PendingCommand(Bind(b"q", b"copy-%d" % number), [None], sink), 64)
        await bench.turn()
        bench.apply(0)
        for number in range(4):
            bench.proposer.add(PendingCommand(Push(b"q", None, [b"x"] * 200), [number], sink), 300)
        for position in range(1, 5):
            await bench.turn()
            bench.apply(position)
        commands = [msgpack.unpackb(payload)[3] for _sequence, payload in bench.sent[1:]]
        assert [len(batch) for batch in commands] == [1, 1, 1, 1]
        assert bench.machine.state.last_sequence == 4 * 200 * 101

    run(scenario)


def test_few_batches_are_in_flight_and_the_next_follows_when_one_is_applied(monkeypatch: pytest.MonkeyPatch) -> None:
    # A machine that stalls for a moment must not resend them.
    monkeypatch.setattr(module, "RESEND_AFTER_S", 600.0)

    async def scenario(bench: Bench, sink: Recorder) -> None:
        await three_batches(bench, sink)
        assert bench.sequences == [1, 2, 3]
        for number in range(5):
            push(bench, sink, b"%d" % number)
            await bench.turn()
        assert bench.sequences == [1, 2, 3], "there are enough"
        bench.apply(0)
        await bench.turn()
        assert bench.sequences == [1, 2, 3, 4]
        assert len(msgpack.unpackb(bench.sent[3][1])[3]) == 5, "waiting commands are sent together"

    run(scenario)


def test_a_batch_waits_until_it_holds_as_much_as_is_in_flight(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sync of little data costs as much as one of much; nothing waits longer than the batches in flight."""
    monkeypatch.setattr(module, "RESEND_AFTER_S", 600.0)

    async def scenario(bench: Bench, sink: Recorder) -> None:
        for number in range(3):
            push(bench, sink, b"%d" % number)
        await bench.turn()
        for number in range(2):
            push(bench, sink, b"%d" % number)
            await bench.turn()
        assert bench.sequences == [1]
        push(bench, sink, b"2")
        await bench.turn()
        assert bench.sequences == [1, 2]
        push(bench, sink, b"3")
        await bench.turn()
        assert bench.sequences == [1, 2]
        bench.apply(0)
        bench.apply(1)
        await bench.turn()
        assert bench.sequences == [1, 2, 3]

    run(scenario)


def test_large_batches_go_one_at_a_time() -> None:
    async def scenario(bench: Bench, sink: Recorder) -> None:
        for _ in range(3):
            push(bench, sink, b"x" * module.INFLIGHT_BYTES_MAX)
        await bench.turn()
        assert bench.sequences == [1]
        await bench.settle()
        assert bench.sequences == [1, 2, 3]
        assert sink.codes == ["ok"] * 3

    run(scenario)


def test_batch_ends_with_the_bytes_it_may_have() -> None:
    async def scenario(bench: Bench, sink: Recorder) -> None:
        for _ in range(4):
            push(bench, sink, b"x" * (module.BATCH_BYTES // 2))
        await bench.turn()
        assert [len(msgpack.unpackb(payload)[3]) for _sequence, payload in bench.sent] == [2, 2]

    run(scenario)


def test_tail_grows_until_it_is_full_or_sent() -> None:
    async def scenario(bench: Bench, sink: Recorder) -> None:
        def tail() -> Push | None:
            return bench.proposer.open_command(sink, Push, b"q", 0)

        pending = push(bench, sink, b"0")
        for _ in range(module.COMMAND_ITEMS_MAX - 1):
            command = tail()
            assert command is not None
            assert command is pending.command
            command.contents.append(b"x")
            bench.proposer.share(9, None)
        assert tail() is None, "full"
        pending = push(bench, sink, b"0")
        assert tail() is pending.command
        bench.proposer.share(module.BATCH_BYTES)
        assert tail() is None, "large"
        push(bench, sink, b"0")
        await bench.settle()
        assert tail() is None, "sent"


def test_only_requests_of_the_same_kind_queue_and_sink_share_a_command() -> None:
    async def scenario(bench: Bench, sink: Recorder) -> None:
        proposer = bench.proposer
        pending = push(bench, sink, b"0")
        assert proposer.open_command(sink, Push, b"q", 0) is pending.command
        assert proposer.open_command(sink, Push, b"other", 0) is None
        assert proposer.open_command(sink, Pull, b"q", 0) is None
        assert proposer.open_command(Recorder(), Push, b"q", 0) is None
        assert proposer.open_command(sink, Push, b"q", 0) is pending.command
        await bench.settle()

    run(scenario)


def test_commands_of_several_queues_grow_side_by_side_but_not_across_a_clients_other_request() -> None:
    async def scenario(bench: Bench, sink: Recorder) -> None:
        proposer = bench.proposer
        first = push(bench, sink, b"0")
        other = PendingCommand(Push(b"other", None, [b"1"]), [b"1"], sink)
        proposer.add(other, 9)
        assert first.number < other.number == proposer.last_number
        assert proposer.open_command(sink, Push, b"q", first.number) is first.command
        assert proposer.share(9, b"2") == first.number
        assert proposer.open_command(sink, Push, b"q", other.number) is None
        assert proposer.open_command(sink, Push, b"other", other.number) is other.command
        assert proposer.open_command(sink, Push, b"other", other.number + 1) is None
        proposer.retire(LmqError("shutting_down", "the node stops"))
        assert proposer.open_command(sink, Push, b"q", 0) is None
        await bench.settle()

    run(scenario)


def test_without_a_leader_nothing_is_sent_until_there_is_one() -> None:
    async def scenario(bench: Bench, sink: Recorder) -> None:
        bench.leader = False
        push(bench, sink, b"x")
        await bench.turn()
        assert bench.sent == []
        bench.leader = True
        bench.proposer.resend()
        assert bench.sequences == [1]

    run(scenario)


def test_a_change_of_the_leader_resends_all_in_order_and_each_is_applied_once() -> None:
    async def scenario(bench: Bench, sink: Recorder) -> None:
        await three_batches(bench, sink)
        bench.proposer.resend()
        assert bench.sequences == [1, 2, 3, 1, 2, 3]
        # The old leader had committed the first two after all.
        statuses = [bench.apply(position) for position in (0, 1, 3, 4, 5, 2)]
        assert statuses == ["applied", "applied", "duplicate", "duplicate", "applied", "duplicate"]
        assert [outcome[1] for outcome in sink.outcomes] == [[0], [1], [2], [3]]
        assert len(bench.machine.state.queues[b"q"]) == 4

    run(scenario)


def test_a_gap_resends_from_the_missing_batch_on() -> None:
    async def scenario(bench: Bench, sink: Recorder) -> None:
        await three_batches(bench, sink)
        # The first was lost in transit.
        assert [bench.apply(1), bench.apply(2)] == ["gap", "gap"]
        assert sink.outcomes == []
        await until(lambda: len(bench.sent) == 6)
        assert bench.sequences[3:] == [1, 2, 3]
        assert [bench.apply(position) for position in (3, 4, 5)] == ["applied"] * 3
        assert [outcome[1] for outcome in sink.outcomes] == [[0], [1], [2], [3]]

    run(scenario)


def test_a_refusal_by_a_follower_resends_after_a_moment() -> None:
    async def scenario(bench: Bench, sink: Recorder) -> None:
        push(bench, sink, b"x")
        await bench.turn()
        for _ in range(10):
            bench.proposer.resend_soon()
        await until(lambda: len(bench.sent) > 1)
        assert bench.sequences == [1, 1], "ten refusals are one reason"

    run(scenario)


@pytest.mark.usefixtures("impatient")
def test_a_missing_answer_resends_with_growing_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "UNKNOWN_AFTER_S", 60.0)

    async def scenario(bench: Bench, sink: Recorder) -> None:
        loop = asyncio.get_running_loop()
        push(bench, sink, b"x")
        await bench.turn()
        times = [loop.time()]
        for count in range(2, 6):
            await until(lambda count=count: len(bench.sent) >= count)  # type: ignore[misc]
            times.append(loop.time())
        pauses = [later - earlier for earlier, later in itertools.pairwise(times)]
        assert pauses[3] > 0.1, "the fourth time after eight times the first patience"
        assert bench.sequences == [1] * 5
        bench.apply(4)
        assert sink.codes == ["ok"]

    run(scenario)


@pytest.mark.usefixtures("impatient")
def test_large_batches_get_time_for_slow_networks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "UNKNOWN_AFTER_S", 60.0)
    monkeypatch.setattr(module, "RESEND_BYTES_PER_S", 10)

    async def scenario(bench: Bench, sink: Recorder) -> None:
        push(bench, sink, b"x" * 10_000)
        await bench.turn()
        await asyncio.sleep(0.2)
        assert bench.sequences == [1]

    run(scenario)


@pytest.mark.usefixtures("impatient")
def test_commands_that_no_leader_accepts_fail_as_not_applied() -> None:
    async def scenario(bench: Bench, sink: Recorder) -> None:
        bench.leader = False
        push(bench, sink, b"x", "ticket")
        await until(lambda: sink.outcomes)
        assert sink.outcomes == [("no_leader", ["ticket"], "not_applied")]
        bench.leader = True
        bench.proposer.resend()
        assert bench.sent == [], "refused commands are never sent"
        assert bench.proposer.pending() == 0

    run(scenario)


@pytest.mark.usefixtures("impatient")
def test_a_refused_push_of_a_producer_fails_its_later_ones() -> None:
    """If a later push were stored, the refused one would look like a duplicate."""

    async def scenario(bench: Bench, sink: Recorder) -> None:
        bench.leader = False
        push(bench, sink, b"1", "old", b"p" * 16).since_s -= 3600
        push(bench, sink, b"2", "young of the same", b"p" * 16)
        push(bench, sink, b"3", "young of another", b"q" * 16)
        push(bench, sink, b"4", "young without a producer")
        await until(lambda: sink.outcomes)
        refused = [outcome[1][0] for outcome in sink.outcomes]
        assert refused[:2] == ["old", "young of the same"]
        bench.leader = True
        bench.proposer.resend()
        if len(refused) == 2:
            await bench.settle()
            assert [outcome[1][0] for outcome in sink.outcomes[2:]] == ["young of another", "young without a producer"]
            assert sink.codes[2:] == ["ok", "ok"]

    run(scenario)


@pytest.mark.usefixtures("impatient")
def test_an_unknown_outcome_is_reported_as_unknown_and_may_become_known() -> None:
    async def scenario(bench: Bench, sink: Recorder) -> None:
        push(bench, sink, b"x", "ticket")
        await bench.turn()
        await until(lambda: sink.outcomes)
        assert sink.outcomes == [("unknown_outcome", ["ticket"], "unknown")]
        await asyncio.sleep(0.02)
        assert len(sink.outcomes) == 1, "reported once"
        bench.apply(0)
        assert sink.codes == ["unknown_outcome", "ok"]
        assert bench.proposer.pending() == 0

    run(scenario)


def test_a_snapshot_that_covers_batches_makes_their_results_unknown_and_the_rest_is_resent() -> None:
    async def scenario(bench: Bench, sink: Recorder) -> None:
        await three_batches(bench, sink)
        bench.proposer.covered(2)
        assert sink.outcomes == [("unknown_outcome", [0], "unknown"), ("unknown_outcome", [1], "unknown")]
        assert bench.sequences == [1, 2, 3, 3]

    run(scenario)


def test_batches_of_an_earlier_incarnation_are_resent_under_a_later_one() -> None:
    """The cluster knows a later incarnation of the node than the node itself, because disk and clock went back."""

    async def scenario(bench: Bench, sink: Recorder) -> None:
        await three_batches(bench, sink)
        bench.machine.state.node_sequences.load([(ORIGIN, 99, 5)])
        assert [bench.apply(position) for position in range(3)] == ["duplicate"] * 3
        assert sink.outcomes == []
        bench.proposer.begin_again(100)
        for number in range(4, 6):
            push(bench, sink, b"%d" % number, number)
        bench.sent[:3] = []
        await bench.settle()
        assert [outcome[:2] for outcome in sink.outcomes] == [("ok", [number]) for number in range(6)]
        assert [msgpack.unpackb(payload)[1:3] for _, payload in bench.sent] == [
            [100, number] for number in (1, 2, 3, 4)
        ]

    run(scenario)


def test_abandoned_commands_are_not_resent_under_a_later_incarnation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SWEEP_S", 0.005)
    monkeypatch.setattr(module, "UNKNOWN_AFTER_S", 0.0)

    async def scenario(bench: Bench, sink: Recorder) -> None:
        push(bench, sink, b"x")
        await until(lambda: sink.outcomes)
        bench.sent.clear()
        bench.proposer.begin_again(100)
        assert (bench.sent, bench.proposer.pending()) == ([], 0)

    run(scenario)


@pytest.mark.parametrize("is_known", [True, False], ids=["known", "covered by a snapshot"])
def test_an_abandoned_push_under_a_later_incarnation_fails_later_pushes_of_its_producer(
    monkeypatch: pytest.MonkeyPatch, is_known: bool
) -> None:
    """Its client resends it; if a later push were stored, it would look like a duplicate."""
    monkeypatch.setattr(module, "SWEEP_S", 0.005)
    monkeypatch.setattr(module, "UNKNOWN_AFTER_S", 0.05)
    monkeypatch.setattr(module, "NO_LEADER_AFTER_S", 600.0)

    async def scenario(bench: Bench, sink: Recorder) -> None:
        push(bench, sink, b"1", "old", b"p" * 16)
        await bench.turn()
        if is_known:
            await until(lambda: sink.outcomes)
            push(bench, sink, b"2", "sent", b"p" * 16)
            push(bench, sink, b"3", "of another", b"q" * 16)
            await bench.turn()
        bench.leader = False
        push(bench, sink, b"4", "waiting", b"p" * 16)
        push(bench, sink, b"5", "without a producer")
        bench.leader = True
        bench.sent.clear()
        bench.proposer.begin_again(100, is_known=is_known)
        sent = [command[3] for _sequence, payload in bench.sent for command in msgpack.unpackb(payload)[3]]
        assert sent == ([[b"3"]] if is_known else []) + [[b"5"]]
        expected = [("unknown_outcome", ["old"]), ("no_leader", ["sent"]), ("no_leader", ["waiting"])]
        assert [each[:2] for each in sink.outcomes] == [each for each in expected if is_known or each[1] != ["sent"]]

    run(scenario)


def test_close_refuses_waiting_commands_and_reports_sent_ones_as_unknown() -> None:
    async def scenario(bench: Bench, sink: Recorder) -> None:
        push(bench, sink, b"x", "sent")
        await bench.turn()
        bench.leader = False
        push(bench, sink, b"y", "waiting")
        bench.proposer.close(LmqError("shutting_down", "going"))
        assert sorted(outcome[:2] for outcome in sink.outcomes) == [
            ("shutting_down", ["waiting"]),
            ("unknown_outcome", ["sent"]),
        ]
        with pytest.raises(LmqError, match="going"):
            push(bench, sink, b"z")

    run(scenario)


def test_settle_fails_commands_without_a_timely_outcome() -> None:
    """Unsent commands are never sent; sent ones may still be applied, and the node's own commands still are."""

    async def scenario(bench: Bench, sink: Recorder) -> None:
        push(bench, sink, b"x", "sent")
        await bench.turn()
        bench.leader = False
        push(bench, sink, b"y", "waiting")
        own = Recorder()
        bench.proposer.add_first(PendingCommand(Push(b"own", None, [b"z"]), ["own"], own))
        waiting = asyncio.ensure_future(bench.proposer.drained(10))
        await bench.turn()
        await bench.proposer.settle(0.0, LmqError("shutting_down", "going"))
        assert sorted(sink.outcomes) == [
            ("shutting_down", ["waiting"], "not_applied"),
            ("unknown_outcome", ["sent"], "unknown"),
        ]
        await asyncio.wait_for(waiting, 5)
        bench.leader = True
        bench.proposer.resend()
        await bench.settle()
        assert own.codes == ["ok"]
        assert len(bench.machine.state.queues[b"q"]) == 1

    run(scenario)


def test_commands_beyond_the_bound_are_refused_and_not_queued() -> None:
    async def scenario(bench: Bench, sink: Recorder) -> None:
        bench.leader = False
        body = b"x" * (40 * 1024 * 1024)
        for _ in range(4):
            push(bench, sink, body)
        assert bench.proposer.is_full()
        pending = bench.proposer.pending()
        with pytest.raises(LmqError) as caught:
            push(bench, sink, b"x")
        assert (caught.value.code, caught.value.retryable) == ("overloaded", True)
        assert bench.proposer.pending() == pending

    run(scenario)


def test_a_batch_too_large_for_peers_is_refused_and_the_next_one_is_sent() -> None:
    async def scenario(bench: Bench, sink: Recorder) -> None:
        bench.proposer.add(PendingCommand(Ack(b"n" * (BATCH_BYTES_MAX + 1), [1]), ["large"], sink), 64)
        await bench.turn()
        push(bench, sink, b"x", "next")
        await bench.settle()
        assert [(outcome[0], outcome[1]) for outcome in sink.outcomes] == [("too_large", ["large"]), ("ok", ["next"])]
        assert bench.sequences == [1]

    run(scenario)


def test_a_large_batch_is_encoded_as_a_small_one() -> None:
    async def scenario(bench: Bench, sink: Recorder) -> None:
        for size in (10, LARGE_BYTES, 3 * LARGE_BYTES):
            push(bench, sink, b"b" * size)
            await bench.settle()
        for _sequence, payload in bench.sent:
            assert msgpack.packb(msgpack.unpackb(payload)) == payload

    run(scenario)


def test_sink_that_raises_does_not_keep_others_from_their_results() -> None:
    class Broken(Recorder):
        def completed(self, pending: PendingCommand, result: Any) -> None:
            raise RuntimeError("broken")

    async def scenario(bench: Bench, sink: Recorder) -> None:
        push(bench, Broken(), b"x")
        push(bench, sink, b"y")
        await bench.settle()
        assert sink.codes == ["ok"]

    run(scenario)


def test_a_command_that_the_state_machine_refuses_is_reported_as_such() -> None:
    async def scenario(bench: Bench, sink: Recorder) -> None:
        bench.proposer.add(PendingCommand(Pull(b"", 1), ["bad"], sink), 64)
        push(bench, sink, b"y", "good")
        await bench.settle()
        assert [(outcome[0], outcome[1]) for outcome in sink.outcomes] == [("bad_request", ["bad"]), ("ok", ["good"])]

    run(scenario)


def test_drained_waits_for_outcomes_for_a_limited_time() -> None:
    async def scenario(bench: Bench, sink: Recorder) -> None:
        await bench.proposer.drained(10)
        push(bench, sink, b"x")
        waiting = asyncio.ensure_future(bench.proposer.drained(10))
        await bench.turn()
        assert not waiting.done()
        await bench.settle()
        await asyncio.wait_for(waiting, 5)
        push(bench, sink, b"y")
        await bench.proposer.drained(0.01)
        assert sink.codes == ["ok"]

    run(scenario)
