"""Attempts: repeated pushes and polls of one client get the result of the first, in bounded memory."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from lmqcluster.core import Fault, Op, PushFlag
from lmqcluster.core.dedup.attempts import Attempts
from lmqcluster.core.owners.quotas import Kind, Quotas
from lmqcluster.core.state import state as state_module
from tests.property.driver import SECOND, UNDO, Driver, copied, numbers, records

Q, OTHER = b"q", b"other"
W = 300


def push(driver: Driver, attempt: bytes, body: bytes = b"x", owner: bytes = b"me", queue: bytes = Q) -> Any:
    return driver.batch([Op.PUSH_ATTEMPTS, queue, [[body, None, b"", attempt, []]], owner])[0]


def poll(driver: Driver, attempt: bytes = b"", count: int = 10, hide_s: int = 30, owner: bytes = b"me") -> Any:
    return driver.do(Op.POLL, Q, count, hide_s * SECOND, False, False, owner, attempt, W * SECOND)


@pytest.fixture
def driver() -> Driver:
    one = Driver()
    one.do(Op.CREATE, Q, b"", [], True)
    return one


# --- pushes -----------------------------------------------------------------------------------------------------------


def test_a_push_is_stored_once_for_five_minutes_to_the_microsecond(driver: Driver) -> None:
    ((flag, sequence),) = push(driver, b"1")
    driver.now_us += W * SECOND - 1
    assert push(driver, b"1", b"another body") == [(flag | PushFlag.REPLAYED, sequence)]
    driver.now_us += 1
    ((flag, later),) = push(driver, b"1")
    assert (flag, later > sequence, driver.size(Q)) == (PushFlag.STORED, True, 2)
    assert driver.machine.state.queues[Q].counters.deduplicated_total == 1


def test_attempts_belong_to_owner_and_queue(driver: Driver) -> None:
    driver.do(Op.CREATE, OTHER)
    stored = [push(driver, b"1"), push(driver, b"1", owner=b"you"), push(driver, b"1", queue=OTHER), push(driver, b"2")]
    assert [flag for ((flag, _sequence),) in stored] == [PushFlag.STORED] * 4


def test_rows_with_and_without_attempts_share_a_push(driver: Driver) -> None:
    def rows(*attempts: bytes | None) -> list[Any]:
        return [[body, None, b"", attempt, []] for body, attempt in zip((b"a", b"b", b"c"), attempts, strict=True)]

    first = driver.do(Op.PUSH_ATTEMPTS, Q, rows(b"1", None, b"1"), b"me")
    assert [flag for flag, _ in first] == [0, 0, PushFlag.REPLAYED]
    assert first[0][1] == first[2][1], "the third repeats the first"
    again = driver.do(Op.PUSH_ATTEMPTS, Q, rows(b"1", None, b"2"), b"me")
    assert [flag for flag, _ in again] == [PushFlag.REPLAYED, 0, 0]
    assert driver.size(Q) == 4


def test_a_repeated_push_needs_no_room(driver: Driver) -> None:
    driver.set(Q, max_items=1)
    ((_, sequence),) = push(driver, b"1")
    assert push(driver, b"1") == [(PushFlag.REPLAYED, sequence)]
    assert push(driver, b"2") == [(PushFlag.FULL, 0)]
    driver.set(Q, max_items=2)
    assert push(driver, b"2")[0][0] == PushFlag.STORED, "the push that was refused is new"


def test_a_queue_refuses_each_row_for_itself(driver: Driver) -> None:
    driver.set(Q, max_items=2, max_item_size=3)
    rows = [[body, None, b"", None, []] for body in (b"long", b"a", b"b", b"c")]
    flags = [flag for flag, _sequence in driver.do(Op.PUSH_ATTEMPTS, Q, rows)]
    assert flags == [PushFlag.OVERSIZED, PushFlag.STORED, PushFlag.STORED, PushFlag.FULL]
    assert (driver.size(Q), driver.machine.state.queues[Q].counters.refused_total) == (2, 2)


def test_messages_of_one_kind_share_their_meta(driver: Driver) -> None:
    kinds = (b"text/plain", b"text/plain", b"text/html", b"text/html")
    for number, kind in enumerate(kinds):
        row = [b"x", bytes(bytearray(kind)), b"", b"%d" % number, []]
        driver.do(Op.PUSH_ATTEMPTS, Q, [row])
    first, second, third, fourth = (message.meta for *_, message in poll(driver))
    assert (first, third) == ((b"text/plain", b""), (b"text/html", b""))
    assert first is second
    assert third is fourth


def test_messages_of_one_push_keep_what_is_their_own(driver: Driver) -> None:
    kinds = [
        (b"text/plain", b"\x81\xa1a\xa1b", []),
        (b"text/plain", b"", []),
        (b"text/plain", b"", [0, 0, 0, 0, b"label", b""]),
    ]
    rows = [[b"%d" % place, *kinds[kind]] for place, kind in enumerate((0, 0, 1, 2, 2, 1))]
    given = [[*row[:3], b"%d" % place, row[3]] for place, row in enumerate(rows)]
    stored = driver.do(Op.PUSH_ATTEMPTS, Q, given, b"me")
    assert stored == [(PushFlag.STORED, stored[0][1] + place) for place in range(len(rows))]
    found = [message for *_, message in poll(driver)]
    assert [(one.content, *one.meta, one.traits.label) for one in found] == [
        (row[0], row[1], row[2], b"label" if row[3] else b"") for row in rows
    ]


def test_an_attempt_whose_message_is_refused_is_new_again_in_the_same_push(driver: Driver) -> None:
    driver.set(Q, max_item_size=3)
    rows = [[body, None, b"", attempt, []] for body, attempt in ((b"x", b"1"), (b"long", b"2"), (b"y", b"2"))]
    first, second, third = driver.do(Op.PUSH_ATTEMPTS, Q, rows, b"me")
    assert (first, second) == ((PushFlag.STORED, first[1]), (PushFlag.OVERSIZED, 0))
    assert third == (PushFlag.STORED, first[1] + 1)


def test_a_push_tells_the_sequences_of_messages_not_of_copies(driver: Driver) -> None:
    driver.do(Op.CREATE, OTHER)
    driver.do(Op.BIND, Q, OTHER, True)
    rows = [[b"x", None, b"", b"%d" % number, []] for number in range(3)]
    stored = [sequence for _flag, sequence in driver.do(Op.PUSH_ATTEMPTS, Q, rows, b"me")]
    assert [message.sequence for *_, message in poll(driver)] == stored


def test_a_push_with_attempts_makes_a_bounded_number_of_copies(driver: Driver) -> None:
    for number in range(4):
        driver.do(Op.CREATE, b"copy-%d" % number)
        driver.do(Op.BIND, Q, b"copy-%d" % number, True)
    rows = [[b"x", None, b"", None, []]] * 5_001
    flags = [flag for flag, _sequence in driver.do(Op.PUSH_ATTEMPTS, Q, rows)]
    assert flags == [PushFlag.STORED] * 5_000 + [PushFlag.OVERSIZED]
    assert driver.size(b"copy-3") == 5_000


@pytest.mark.parametrize(
    "fields",
    [
        [[[b"x", None, b"", None, []], [b"x", None, b"", b"x" * 256, []]], b""],
        [[[b"x", None, b"", None, []], [b"x", None, b"", "1", []]], b""],
        [[[b"x", None, b"", b"", []]], b""],
        [[[b"x", None, b"", None, []]], "me"],
        [[[b"x", None, b"", None]], b""],
        [7, b""],
    ],
)
def test_malformed_attempts_store_nothing(driver: Driver, fields: list[Any]) -> None:
    assert isinstance(driver.batch([Op.PUSH_ATTEMPTS, Q, *fields])[0], Fault)
    assert driver.size(Q) == 0


def test_a_push_with_attempts_needs_an_existing_queue(driver: Driver) -> None:
    assert push(driver, b"1", queue=OTHER).code == "queue_not_found"
    assert OTHER not in driver.machine.state.queues


def test_no_push_is_refused_for_lack_of_room_and_the_latest_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_module, "SENT_MAX", 100)
    driver = Driver()
    driver.do(Op.CREATE, Q, b"", [], True)
    for number in range(350):
        assert push(driver, b"%d" % number)[0][0] == PushFlag.STORED
        assert len(driver.machine.state.sent) == min(100, number + 1)
    push(driver, b"1", owner=b"you")
    driver = Driver(copied(driver.machine))
    assert [push(driver, b"%d" % number)[0][0] for number in range(250, 350)] == [PushFlag.REPLAYED] * 100
    assert push(driver, b"249")[0][0] == PushFlag.STORED
    assert driver.machine.state.quotas.used(Kind.ATTEMPTS, b"me") == 100
    driver.wait(W)
    driver.tick(2)
    assert (len(driver.machine.state.sent), driver.machine.state.quotas.total(Kind.ATTEMPTS)) == (0, 0)


def test_attempts_take_no_part_in_the_fullest_quota(driver: Driver) -> None:
    for number in range(100):
        push(driver, b"%d" % number)
    assert driver.machine.state.quotas.fullest()[0] is Kind.QUEUES


# --- polls ------------------------------------------------------------------------------------------------------------


def test_a_repeated_poll_gets_the_same_deliveries_with_fresh_leases(driver: Driver) -> None:
    driver.push(Q, b"a", b"b", b"c")
    first = poll(driver, b"1", count=2)
    driver.wait(20)
    again = poll(driver, b"1", count=2)
    assert numbers(again) == numbers(first)
    assert [message.delivered for _, _, _, message in again] == [1, 1]
    assert driver.machine.state.queues[Q].counters.pulled_total == 2
    driver.wait(20)
    assert len(poll(driver, b"2")) == 1, "the leases were to end 10 seconds ago"
    driver.wait(10)
    assert len(poll(driver)) == 2


def change_nothing(_driver: Driver, _taken: list[Any]) -> None:
    """Leave the deliveries as they are."""


def delete_one(driver: Driver, taken: list[Any]) -> None:
    _, number, _, message = taken[0]
    assert driver.do(Op.DELETE_POLLED, Q, [[message.sequence, number]]) == [True]


def hide_one(driver: Driver, taken: list[Any]) -> None:
    _, number, _, message = taken[0]
    driver.do(Op.UPDATE, Q, message.sequence, number, 60 * SECOND)


def put_back_one(driver: Driver, taken: list[Any]) -> None:
    driver.do(Op.NACK, Q, numbers(taken)[:1], *UNDO)


def let_them_end(driver: Driver, _taken: list[Any]) -> None:
    driver.wait(30)


def suspend(driver: Driver, _taken: list[Any]) -> None:
    driver.do(Op.SUSPEND, Q, True)


def forget(driver: Driver, taken: list[Any]) -> None:
    driver.do(Op.EXTEND, Q, numbers(taken), 3_600 * SECOND)
    driver.wait(W)


@pytest.mark.parametrize("change", [delete_one, hide_one, put_back_one, let_them_end, suspend, forget])
def test_a_repeated_poll_is_a_new_one_after_a_change(driver: Driver, change: Any) -> None:
    driver.push(Q, b"a", b"b")
    first = poll(driver, b"1", count=2)
    change(driver, first)
    assert not {*numbers(poll(driver, b"1", count=2))} & {*numbers(first)}


@pytest.mark.parametrize(
    "more",
    [{"owner": b"you"}, {"attempt": b"2"}, {"count": 1}, {"hide_s": 0}],
    ids=["owner", "attempt", "count", "hide"],
)
def test_another_poll_gets_none_of_the_deliveries(driver: Driver, more: dict[str, Any]) -> None:
    driver.push(Q, b"a", b"b")
    poll(driver, b"1", count=2)
    assert poll(driver, **{"attempt": b"1", "count": 2, **more}) == []
    assert len(poll(driver, b"1", count=2)) == 2, "unless they were taken"


def test_a_delivery_that_was_returned_again_cannot_be_undone(driver: Driver) -> None:
    """The node that gave the first answer finds its client gone when the repetition has been answered by another node."""
    driver.push(Q, b"a", b"b")
    taken = numbers(poll(driver, b"1", count=1))
    assert numbers(poll(driver, b"1", count=1)) == taken
    driver = Driver(copied(driver.machine))
    assert driver.do(Op.NACK, Q, taken, *UNDO) == [False]
    assert numbers(poll(driver, b"1", count=1)) == taken
    driver.wait(30)
    later = poll(driver, b"2", count=2)
    assert driver.do(Op.NACK, Q, numbers(later), *UNDO) == [True, True], "but its next delivery can"


def test_polls_without_an_attempt_leave_no_trace(driver: Driver) -> None:
    driver.push(Q, b"a")
    poll(driver, b"1", hide_s=0)
    poll(driver)
    poll(driver, b"1")
    assert len(driver.machine.state.received) == 0


@pytest.mark.parametrize(
    "fields", [[b"me", b"x" * 256, SECOND], [b"me", b"1", 301 * SECOND], [b"me", b"1", -1], [1, b"1", 1]]
)
def test_a_malformed_attempt_of_a_poll_changes_nothing(driver: Driver, fields: list[Any]) -> None:
    driver.push(Q, b"a")
    assert isinstance(driver.batch([Op.POLL, Q, 1, SECOND, False, False, *fields])[0], Fault)
    assert len(poll(driver)) == 1


def test_what_polls_leave_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_module, "RECEIVED_MAX", 20)
    driver = Driver()
    driver.do(Op.CREATE, Q, b"", [], True)
    for attempt in range(100):
        driver.push(Q, *[b"x"] * (attempt % 30))
        poll(driver, b"%d" % attempt, count=attempt % 30)
        assert driver.machine.state.quotas.used(Kind.ATTEMPTS, b"me") <= 20
    state = copied(driver.machine).state
    index = state.queues[Q].index()
    assert len(index._again) <= len(state.queues[Q])


def test_attempts_are_in_snapshots_and_digests(driver: Driver) -> None:
    driver.push(Q, b"a", b"b")
    push(driver, b"1")
    taken = numbers(poll(driver, b"1", count=2))
    assert numbers(poll(driver, b"1", count=2)) == taken
    again = Driver(copied(driver.machine))
    assert records(again.machine) == records(driver.machine)
    assert again.do(Op.DIGEST, b"7" * 8) == driver.do(Op.DIGEST, b"7" * 8)
    again.machine.state.sent.remember(b"me", [(b"k", (1,))], again.now_us + 1)
    assert again.do(Op.DIGEST, b"7" * 8) != driver.do(Op.DIGEST, b"7" * 8)


# --- the table --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(30))
def test_the_table_against_a_list(seed: int) -> None:
    """Random requests of a few owners against a list that is searched."""
    random, most = Random(seed), 12
    quotas = Quotas()
    table = Attempts(quotas, most)
    rows: list[tuple[bytes, bytes, tuple[int, ...], int]] = []
    now_us = 0
    for number in range(400):
        now_us += random.choice((0, 0, 1, 5, 40))
        owner, key = random.choice((b"", b"o", b"p")), random.choice((b"1", b"2", b"3"))
        match random.randrange(3):
            case 0:
                result = (number,) * random.choice((1, 1, 2, 5, 13))
                ends_us = now_us + random.choice((5, 50))
                table.remember(owner, [(key, result)], ends_us)
                rows.append((owner, key, result, ends_us))
                while sum(len(one[2]) for one in rows if one[0] == owner) > most:
                    rows.remove(next(one for one in rows if one[0] == owner))
            case 1:
                table.expire(now_us, random.choice((None, 1, 3)))
            case _:
                state: list[Any] = [*table.rows()]
                table = Attempts(quotas := Quotas(), most)
                table.load(state)
                assert [*table.rows()] == state
        for who in (b"", b"o", b"p"):
            for what in (b"1", b"2", b"3"):
                known = [one for one in rows if one[:2] == (who, what)]
                expected = known[-1][2] if known and now_us < known[-1][3] else None
                assert table.find(who, what, now_us) == expected
            kept = sum(len(one[2]) for one in rows if one[0] == who and now_us < one[3])
            assert kept <= quotas.used(Kind.ATTEMPTS, who) <= most
    table.expire(1 << 60, None)
    assert (len(table), table.due_us(), quotas.owners) == (0, None, 0)


def test_a_transaction_has_no_push_with_attempts(driver: Driver) -> None:
    step = [Op.PUSH_ATTEMPTS, Q, [[b"x", None, b"", b"1", []]], b"me"]
    assert isinstance(driver.batch([Op.TRANSACTION, [step], b""])[0], Fault)
    assert driver.size(Q) == 0
