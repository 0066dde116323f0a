"""Exact keys: what a queue with ``key_window`` and ``key_scope`` stores once, one guarantee per test."""

from __future__ import annotations

from typing import Any

import pytest

from lmqcluster.core import Fault, Machine, Op, PushFlag
from lmqcluster.core.dedup import exact_keys
from lmqcluster.core.handlers.push_plan import known_push
from lmqcluster.core.handlers.transactions import Conflict
from lmqcluster.core.handlers.waiting_pushes import Waits
from lmqcluster.core.owners.quotas import Kind, Quotas
from tests.property.driver import Driver, compile_pattern, copied, numbers, records
from tests.property.work import Work, counted

Q, OTHER = b"q", b"other"
W = 300
SECOND = 1_000_000


@pytest.fixture
def driver() -> Driver:
    one = Driver()
    one.set(Q, key_window=W)
    return one


def row(body: bytes, key: bytes | None, group: bytes = b"") -> list[Any]:
    return [body, None, b"", key, [-1, 0, 0, 0, b"", group]]


def push(
    driver: Driver, body: bytes, key: bytes = b"k", queue: bytes = Q, owner: bytes = b"", group: bytes = b""
) -> Any:
    (result,) = driver.do(Op.PUSH_ROWS, queue, [row(body, key, group)], owner)
    return result


def is_new(result: tuple[int, int]) -> bool:
    return result[0] == PushFlag.STORED


def keys(driver: Driver) -> int:
    return len(driver.machine.state.keys)


# --- window -----------------------------------------------------------------------------------------------------------


def test_a_key_counts_until_its_window_has_ended_to_the_microsecond(driver: Driver) -> None:
    first = push(driver, b"x")
    driver.now_us += W * SECOND - 1
    assert push(driver, b"x") == (PushFlag.REPLAYED, first[1])
    driver.now_us += 1
    assert is_new(push(driver, b"x"))
    assert driver.size(Q) == 2


@pytest.mark.parametrize("window", [0.000001, 0.25, 1, 86_400, 1e12])
def test_a_window_of_any_length_is_exact(driver: Driver, window: float) -> None:
    driver.set(Q, key_window=window)
    push(driver, b"x")
    driver.now_us += round(window * SECOND) - 1
    assert not is_new(push(driver, b"x"))
    driver.now_us += 1
    assert is_new(push(driver, b"x"))


def test_a_repetition_does_not_lengthen_the_window(driver: Driver) -> None:
    push(driver, b"x")
    for _ in range(2):
        driver.wait(W / 2)
        last = push(driver, b"x")
    assert is_new(last)


def test_a_key_is_new_again_although_its_row_is_removed_later(driver: Driver) -> None:
    driver.do(Op.PUSH_ROWS, Q, [row(b"", b"%d" % number) for number in range(5_000)])
    driver.wait(W)
    last = b"4999"
    again = push(driver, b"x", last)
    assert is_new(again)
    assert keys(driver) == 3_001
    driver.tick(2)
    assert keys(driver) == 1
    assert push(driver, b"x", last) == (PushFlag.REPLAYED, again[1])
    driver.wait(W)
    driver.tick()
    assert keys(driver) == driver.machine.state.quotas.used(Kind.KEYS, b"") == 0


def test_rows_of_windows_of_different_lengths_end_in_the_order_of_their_ends(driver: Driver) -> None:
    push(driver, b"x", b"long")
    driver.set(Q, key_window=10)
    push(driver, b"x", b"short")
    driver.set(OTHER, key_window=20)
    push(driver, b"x", b"k", OTHER)
    for wait, left in [(10, 2), (10, 1), (W - 20, 0)]:
        driver.wait(wait)
        driver.tick()
        assert keys(driver) == left


# --- what counts ------------------------------------------------------------------------------------------------------


def test_neither_body_nor_options_nor_principal_make_a_difference(driver: Driver) -> None:
    _, sequence = push(driver, b"x", owner=b"a")
    assert push(driver, b"another", owner=b"b", group=b"g") == (PushFlag.REPLAYED, sequence)
    assert driver.machine.state.quotas.used(Kind.KEYS, b"b") == 0
    assert driver.drain(Q) == [b"x"]


def test_a_key_counts_after_its_message_has_gone(driver: Driver) -> None:
    _, sequence = push(driver, b"x")
    driver.ack(Q, *numbers(driver.pull(Q)))
    assert push(driver, b"x") == (PushFlag.REPLAYED, sequence)


def test_queues_are_separate(driver: Driver) -> None:
    driver.set(OTHER, key_window=W)
    push(driver, b"x")
    assert is_new(push(driver, b"x", queue=OTHER))


def test_keys_count_in_their_group_if_the_scope_is_the_group(driver: Driver) -> None:
    driver.set(Q, key_scope="group")
    for group in (b"", b"g", b"h"):
        assert is_new(push(driver, b"x", group=group))
        assert not is_new(push(driver, b"y", group=group))


def test_group_and_key_are_not_mixed_up(driver: Driver) -> None:
    driver.set(Q, key_scope="group")
    pairs = [(b"", b"k"), (b"g", b"k"), (b"gk", b""), (b"1:g", b"k"), (b"g,", b"k"), (b"g", b",k"), (b"", b"1:g,k")]
    identities = {exact_keys.exact_key(key, group) for group, key in pairs}
    identities |= {exact_keys.exact_key(key, None) for key in (b"k", b"0:,k", b"1:g,k")}
    assert len(identities) == len(pairs) + 3


def test_without_a_key_nothing_is_compared(driver: Driver) -> None:
    driver.push(Q, b"x", b"x")
    driver.do(Op.PUSH_ROWS, Q, [row(b"x", None), row(b"x", None)])
    assert driver.size(Q) == 4


def test_the_scope_alone_has_no_effect() -> None:
    driver = Driver()
    driver.set(Q, key_scope="group")
    push(driver, b"x", group=b"g")
    assert not is_new(push(driver, b"x", group=b"h"))
    result = driver.batch([Op.PUSH_ROWS, Q, [row(b"y", b"k")]])[0]
    assert isinstance(result, Fault)
    assert result.code == "key_reused"


@pytest.mark.parametrize(
    ("name", "value"), [("key_window", 0), ("key_window", -1), ("key_scope", "all"), ("key_scope", 1)]
)
def test_other_values_are_refused(driver: Driver, name: str, value: Any) -> None:
    assert isinstance(driver.batch([Op.SET_PROPERTIES, Q, [[name.encode(), value]]])[0], Fault)


# --- changes of properties --------------------------------------------------------------------------------------------


def test_a_change_of_the_window_holds_for_keys_pushed_after_it(driver: Driver) -> None:
    push(driver, b"x", b"before")
    driver.set(Q, key_window=10)
    push(driver, b"x", b"after")
    driver.wait(10)
    assert not is_new(push(driver, b"x", b"before"))
    assert is_new(push(driver, b"x", b"after"))


def test_a_longer_window_revives_no_key_that_has_ended(driver: Driver) -> None:
    driver.do(Op.PUSH_ROWS, Q, [row(b"", b"%d" % number) for number in range(3_000)])
    driver.wait(W)
    driver.set(Q, key_window=10 * W)
    assert keys(driver) == 1_000
    assert is_new(push(driver, b"", b"2999"))


def test_exact_keys_and_those_of_owners_do_not_meet(driver: Driver) -> None:
    push(driver, b"x")
    driver.clear(Q)
    assert is_new(push(driver, b"x"))
    driver.set(Q, key_window=W)
    assert not is_new(push(driver, b"y"))


def test_a_change_of_the_scope_holds_for_the_pushes_after_it(driver: Driver) -> None:
    push(driver, b"x", group=b"g")
    driver.set(Q, key_scope="group")
    assert is_new(push(driver, b"x", group=b"g"))
    driver.set(Q, key_scope="queue")
    assert not is_new(push(driver, b"x", group=b"h"))


def test_a_default_rule_and_a_parent_set_them_too() -> None:
    driver = Driver()
    driver.defaults((b"^q$", {"key_window": W}))
    push(driver, b"x")
    assert not is_new(push(driver, b"y"))
    driver.set(b"p", key_window=W)
    driver.do(Op.BIND, b"p", b"p+c")
    push(driver, b"x", queue=b"p+c")
    assert not is_new(push(driver, b"y", queue=b"p+c"))


# --- forgetting -------------------------------------------------------------------------------------------------------


def test_a_purge_of_the_queue_forgets_its_keys(driver: Driver) -> None:
    driver.set(OTHER, key_window=W)
    push(driver, b"x", queue=OTHER)
    push(driver, b"x")
    driver.do(Op.PURGE, Q, 0)
    assert driver.machine.state.quotas.used(Kind.KEYS, b"") == 1
    assert is_new(push(driver, b"x"))
    assert not is_new(push(driver, b"x", queue=OTHER))


def test_neither_a_purge_of_some_messages_nor_a_withdrawal_forgets_keys(driver: Driver) -> None:
    push(driver, b"x")
    driver.do(Op.PURGE, Q, 10)
    driver.do(Op.PURGE, Q, 10, b"label")
    assert not is_new(push(driver, b"x"))


def test_a_deletion_forgets_the_keys(driver: Driver) -> None:
    push(driver, b"x", owner=b"a")
    driver.delete(Q)
    assert not driver.machine.state.quotas.owns(b"a")
    driver.set(Q, key_window=W)
    assert is_new(push(driver, b"x"))


def test_the_memory_of_forgotten_keys_is_freed_in_steps() -> None:
    table = exact_keys.ExactKeys(Quotas())
    count = 3 * exact_keys._FREED_MAX - 1
    for number in range(count):
        table.remember(Q, b"%d" % number, b"o", 0, number + 1)
    table.forget(Q)
    assert (len(table), table._quotas.used(Kind.KEYS, b"o")) == (0, 0)
    left = []
    while table.due_us() == 0:
        assert table.expire(0, 1) == 0
        left.append(sum(len(one.known) + len(one.rows) for one in table._forgotten))
    assert left == [2 * (count - exact_keys._FREED_MAX), 2 * (count - 2 * exact_keys._FREED_MAX), 0]
    assert table.due_us() is None


def test_a_queue_by_a_default_rule_is_not_deleted_while_it_has_keys() -> None:
    driver = Driver()
    driver.defaults((b"^q$", {"key_window": 5 * 3_600, "destination_queues": [b"d"]}))
    push(driver, b"x")
    driver.pull(Q)
    driver.wait(2 * 3_600)
    driver.tick(3)
    assert not is_new(push(driver, b"x"))


# --- several pushes of one command ------------------------------------------------------------------------------------


def test_the_second_of_two_pushes_with_one_key_repeats_the_first(driver: Driver) -> None:
    first, second, third = driver.do(Op.PUSH_ROWS, Q, [row(b"x", b"k"), row(b"y", b"k"), row(b"z", b"l")])
    assert (first[0], second, third[0]) == (0, (PushFlag.REPLAYED, first[1]), 0)
    assert driver.drain(Q) == [b"x", b"z"]


def test_a_transaction_stores_a_key_once(driver: Driver) -> None:
    push(driver, b"before")
    steps = [[Op.PUSH_ROWS, Q, [row(b"%d" % number, key)]] for number, key in enumerate([b"k", b"l", b"l"])]
    results = driver.do(Op.TRANSACTION, steps, b"o")
    assert [flag for flag, _ in results] == [PushFlag.REPLAYED, PushFlag.STORED, PushFlag.REPLAYED]
    assert driver.drain(Q) == [b"before", b"1"]


def test_a_command_that_fails_remembers_no_key(driver: Driver) -> None:
    driver.set(Q, max_items=1)
    refused = driver.batch([Op.PUSH_ROWS, Q, [row(b"x", b"k"), row(b"y", b"l")]])[0]
    assert isinstance(refused, Fault)
    conflict = driver.do(Op.TRANSACTION, [[Op.PUSH_ROWS, Q, [row(b"x", b"k")]], [Op.ACK, Q, [99]]], b"")
    assert isinstance(conflict, Conflict)
    assert keys(driver) == 0
    assert is_new(push(driver, b"x"))


def test_a_repetition_needs_no_room(driver: Driver) -> None:
    driver.set(Q, max_items=1, max_item_size=1)
    push(driver, b"x")
    assert not is_new(push(driver, b"a longer body"))


# --- waiting pushes ---------------------------------------------------------------------------------------------------


def wait_for_room(driver: Driver, body: bytes, owner: bytes = b"") -> Any:
    return driver.do(Op.PUSH_ROWS, Q, [row(body, b"k")], owner, None, 0, False, 60 * SECOND)


def test_of_waiting_pushes_with_one_key_one_is_stored(driver: Driver) -> None:
    driver.set(Q, max_items=1)
    driver.push(Q, b"full")
    tickets = [wait_for_room(driver, body, owner) for body, owner in [(b"x", b""), (b"y", b""), (b"z", b"o")]]
    assert wait_for_room(driver, b"z", b"o") == tickets[2]
    assert all(isinstance(one, Waits) for one in tickets)
    assert len(set(tickets)) == 3
    driver.ack(Q, *numbers(driver.pull(Q)))
    driver.tick()
    assert len(driver.machine.state.waiting_pushes) == 0
    assert driver.drain(Q) == [b"x"]
    assert driver.machine.state.queues[Q].counters.deduplicated_total == 2


def test_a_known_key_waits_for_nothing(driver: Driver) -> None:
    driver.set(Q, max_items=1)
    _, sequence = push(driver, b"x")
    assert wait_for_room(driver, b"y") == [(PushFlag.REPLAYED, sequence)]


# --- other queues -----------------------------------------------------------------------------------------------------


def test_a_key_belongs_to_the_queue_that_the_client_names() -> None:
    driver = Driver()
    driver.set(b"alias", destination_queues=[Q, OTHER], key_window=W)
    driver.set(Q, key_window=W)
    driver.do(Op.BIND, Q, b"bound")
    driver.set(b"bound", key_window=W)
    push(driver, b"1", queue=b"alias")
    assert not is_new(push(driver, b"2", queue=b"alias"))
    assert is_new(push(driver, b"3"))
    assert is_new(push(driver, b"4", queue=b"bound"))
    assert driver.drain(Q) == [b"1", b"3"]
    assert driver.drain(b"bound") == [b"1", b"3", b"4"]
    driver.do(Op.PURGE, b"alias", 0)
    assert is_new(push(driver, b"5", queue=b"alias"))


def test_moved_and_redriven_messages_are_not_compared(driver: Driver) -> None:
    driver.set(Q, retry=0, dead_letter_queue=b"dead")
    push(driver, b"x")
    driver.nack(Q, *numbers(driver.pull(Q)))
    assert driver.do(Op.REDRIVE, b"dead", b"", b"", 10) == 1
    assert not is_new(push(driver, b"y"))
    driver.do(Op.PURGE, Q, 0)
    push(driver, b"z", queue=OTHER)
    push(driver, b"z")
    assert driver.do(Op.MOVE, OTHER, Q, 10) == 1
    assert driver.drain(Q) == [b"z", b"z"]


def test_a_suspended_queue_compares_too(driver: Driver) -> None:
    driver.do(Op.SUSPEND, Q, True)
    push(driver, b"x")
    assert not is_new(push(driver, b"x"))


def test_numbered_pushes_have_no_keys_and_are_stored_once_by_their_numbers(driver: Driver) -> None:
    command = [Op.PUSH_ROWS, Q, [row(b"x", None)], b"", b"producer", 1]
    assert driver.do(*command)[0][0] == PushFlag.STORED
    assert driver.do(*command)[0][0] == PushFlag.REPLAYED
    assert isinstance(driver.batch([Op.PUSH_ROWS, Q, [row(b"x", b"k")], b"", b"producer", 2])[0], Fault)


# --- replicas, counts and shortcuts -----------------------------------------------------------------------------------


def test_a_snapshot_keeps_the_keys_with_their_ends(driver: Driver) -> None:
    driver.set(OTHER, key_window=1)
    results = {key: push(driver, b"x", key, queue) for queue in (Q, OTHER) for key in (b"a", b"b", b"c")}
    driver.set(Q, key_window=10)
    push(driver, b"x", b"short")
    driver.wait(1)
    restored = Driver(copied(driver.machine))
    assert records(restored.machine) == records(driver.machine)
    now_us = driver.now_us
    for one in (driver, restored):
        one.now_us = now_us
        assert push(one, b"y", b"a") == (PushFlag.REPLAYED, results[b"a"][1] - 3)
        assert is_new(push(one, b"y", b"a", OTHER))
        one.wait(9)
        assert is_new(push(one, b"x", b"short"))
    assert records(restored.machine) == records(driver.machine)


def test_a_snapshot_taken_while_rows_lag_behind_gives_an_equal_replica(driver: Driver) -> None:
    driver.do(Op.PUSH_ROWS, Q, [row(b"", b"%d" % number) for number in range(4_000)])
    driver.wait(W)
    push(driver, b"", b"3999")
    restored = Driver(copied(driver.machine))
    now_us = driver.now_us
    for one in (driver, restored):
        one.now_us = now_us
        for _ in range(3):
            assert not is_new(push(one, b"", b"3999"))
        assert keys(one) == 1
    assert records(restored.machine) == records(driver.machine)


def test_replicas_whose_keys_differ_have_different_digests(driver: Driver) -> None:
    push(driver, b"x", b"k")
    other = Driver(Machine(compile_pattern))
    other.set(Q, key_window=W)
    push(other, b"x", b"another")
    assert driver.do(Op.DIGEST, b"0" * 8) != other.do(Op.DIGEST, b"0" * 8)


def test_repetitions_are_counted(driver: Driver) -> None:
    for body in (b"x", b"y", b"z"):
        push(driver, body)
    for _ in range(2):
        push(driver, b"x", queue=OTHER)
    queues = driver.machine.state.queues
    assert [queues[name].counters.deduplicated_total for name in (Q, OTHER)] == [2, 1]
    assert queues[Q].counters.pushed_total == 1


def test_a_node_finds_the_push_that_a_repeated_transaction_stored(driver: Driver) -> None:
    driver.set(Q, key_scope="group")
    _, sequence = push(driver, b"x", group=b"g")
    state = driver.machine.state
    known = known_push(state, b"o", Q, b"k", b"g")
    assert known is not None
    assert known.flag >> 8 == sequence
    assert known_push(state, b"o", Q, b"k", b"h") is None
    assert known_push(state, b"o", b"absent", b"k", b"") is None


# --- bounds -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def small_quotas(monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(Quotas, "LIMITS", {**Quotas.LIMITS, Kind.KEYS: 100})
    return 100


def test_a_principal_that_pushes_keys_without_end_is_refused_alone(driver: Driver, small_quotas: int) -> None:
    stored = refused = 0
    for number in range(3 * small_quotas):
        result = driver.batch([Op.PUSH_ROWS, Q, [row(b"", b"%d" % number)], b"greedy"])[0]
        stored += not isinstance(result, Fault)
        refused += isinstance(result, Fault) and result.code == "quota_exceeded"
    assert (stored, refused) == (small_quotas, 2 * small_quotas)
    assert driver.size(Q) == keys(driver) == small_quotas
    assert not is_new(push(driver, b"", b"0", owner=b"greedy"))
    assert is_new(push(driver, b"", b"mine", owner=b"modest"))
    driver.wait(W)
    assert is_new(push(driver, b"", b"0", owner=b"greedy"))


def test_a_command_with_too_many_new_keys_stores_nothing(driver: Driver, small_quotas: int) -> None:
    rows = [row(b"", b"%d" % number) for number in range(small_quotas + 1)]
    result = driver.batch([Op.PUSH_ROWS, Q, rows])[0]
    assert isinstance(result, Fault)
    assert (result.code, keys(driver), driver.size(Q)) == ("quota_exceeded", 0, 0)


@pytest.mark.parametrize("queue", [Q, b"with a limit"])
def test_a_remembered_result_leaves_nothing_behind(driver: Driver, queue: bytes) -> None:
    driver.set(b"with a limit", max_items=1_000)
    members = len(PushFlag._value2member_map_)
    for number in range(100):
        push(driver, b"", b"%d" % number, queue)
        push(driver, b"", b"%d" % number, queue)
    assert len(PushFlag._value2member_map_) <= members + 1


def test_purges_and_deletions_give_the_quota_back(driver: Driver, small_quotas: int) -> None:
    for ended in (lambda: driver.do(Op.PURGE, Q, 0), lambda: driver.delete(Q)):
        driver.set(Q, key_window=W)
        driver.do(Op.PUSH_ROWS, Q, [row(b"", b"%d" % number) for number in range(small_quotas)], b"o")
        ended()
        assert not driver.machine.state.quotas.owns(b"o")


# --- cost -------------------------------------------------------------------------------------------------------------


def _work_with(count: int) -> tuple[Work, Work, Work]:
    """Return the work of new keys, of repetitions and of ends, on a queue that knows `count` keys."""
    driver = Driver()
    driver.set(Q, key_window=W)
    for number in range(100):
        push(driver, b"", b"first %d" % number)
    driver.wait(1)
    for start in range(0, count, 1_000):
        driver.do(Op.PUSH_ROWS, Q, [row(b"", b"%d" % number) for number in range(start, start + 1_000)])
    with counted() as new:
        for number in range(100):
            push(driver, b"", b"new %d" % number)
    with counted() as repeated:
        for number in range(100):
            push(driver, b"", b"new %d" % number)
    driver.wait(W - 1)
    with counted() as ended:
        driver.tick()
    assert keys(driver) == count + 100
    return new, repeated, ended


def test_a_key_costs_the_same_however_many_are_known() -> None:
    for few, many in zip(_work_with(1_000), _work_with(50_000), strict=True):
        assert many.lines <= few.lines * 1.1 + 200
        assert sum(many.linear_calls.values()) <= sum(few.linear_calls.values())


def test_one_batch_ends_a_bounded_number_of_keys(driver: Driver) -> None:
    names = [b"%d" % number for number in range(50)]
    driver.defaults((b"", {"key_window": W}))
    for name in names:
        driver.do(Op.PUSH_ROWS, name, [row(b"", b"%d" % number) for number in range(1_000)])
    driver.wait(W)
    with counted() as work:
        driver.tick()
    assert keys(driver) == 48_000
    assert work.lines < 60_000
    assert driver.machine.state.expiry.next_us <= driver.now_us


def test_deleting_a_queue_with_many_keys_does_little_at_once(driver: Driver) -> None:
    driver.set(Q, fanout_only=True)
    for start in range(0, 50_000, 1_000):
        driver.do(Op.PUSH_ROWS, Q, [row(b"", b"%d" % number) for number in range(start, start + 1_000)])
    with counted() as work:
        driver.do(Op.PURGE, Q, 0)
    assert work.lines < 200
    assert is_new(push(driver, b"", b"7"))
    driver.tick(5)
    assert driver.machine.state.keys.exact.due_us() != 0
