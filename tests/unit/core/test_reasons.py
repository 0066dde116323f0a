"""The reason of a nack is an attribute of its message: replaced by the next one, kept in dead letters, within limits."""

from __future__ import annotations

from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmqcluster.core import Fault, Op
from lmqcluster.core.log.commands import Nack, Place, decode
from lmqcluster.core.messages.attributes import Reason, with_reason
from lmqcluster.wire.attributes import ATTRIBUTE_BYTES_MAX, ATTRIBUTES_MAX, pack_attributes, unpack_attributes
from tests.property.driver import UNDO, Driver, copied, numbers, over_the_wire, records

Q = b"q"
ROOM = ATTRIBUTE_BYTES_MAX
VALUES = st.one_of(
    st.text(max_size=40),
    st.sampled_from(["x" * 31, "x" * 32, "x" * 255, "x" * 256, "x" * 65_535, "x" * 65_536, b"x" * 256, b"x" * 65_536]),
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.sampled_from([0, -1, -32, -33, 127, 128, 1 << 16, 1 << 32, -(1 << 15), -(1 << 31)]),
    st.floats(allow_nan=False, allow_infinity=False),
    st.binary(max_size=40),
)


def attributes_of(message: Any) -> dict[str, Any]:
    return unpack_attributes(message.meta[1])


def refuse(driver: Driver, reason: bytes, place: Place = Place.TAIL, bytes_max: int = ROOM) -> None:
    """Pull a message and return it for this reason."""
    (number,) = numbers(driver.pull(Q))
    assert driver.do(Op.NACK, Q, [number], place, -1, False, reason, bytes_max) == [True]


def delivered(driver: Driver, queue: bytes = Q) -> dict[str, Any]:
    """Return the attributes of the next message, which is put back."""
    (delivery,) = driver.pull(queue)
    driver.put_back(queue, delivery[1])
    return attributes_of(delivery[3])


def push(driver: Driver, **attributes: Any) -> None:
    driver.do(Op.PUSH_ROWS, Q, [[b"body", None, pack_attributes(attributes), None, []]])


@given(st.dictionaries(st.text(min_size=1, max_size=40), VALUES, max_size=20), st.text(min_size=1, max_size=300))
def test_a_reason_joins_the_attributes_as_if_it_had_been_pushed(before: dict[str, Any], reason: str) -> None:
    after = {**before, "lmq.reason": reason}
    assert with_reason(pack_attributes(before), Reason(reason.encode(), 1 << 20)) == pack_attributes(after)
    last = pack_attributes({**after, "lmq.reason": "next"})
    assert with_reason(pack_attributes(after), Reason(b"next", 1 << 20)) == last


@given(VALUES)
def test_a_reason_replaces_an_attribute_of_its_name_that_was_pushed(value: Any) -> None:
    before = pack_attributes({"a": 1, "lmq.reason": value, "z": 2})
    assert with_reason(before, Reason(b"why", 1 << 20)) == pack_attributes({"a": 1, "lmq.reason": "why", "z": 2})


def test_attributes_that_nodes_add_in_another_form_stay() -> None:
    packed = b"\xde\x00\x02\xdb\x00\x00\x00\x03x-a\xdb\x00\x00\x00\x01b\xa1c\xc6\x00\x00\x00\x01\xff"
    found = msgpack.unpackb(with_reason(packed, Reason(b"why", ROOM)))
    assert found == {"x-a": "b", "c": b"\xff", "lmq.reason": "why"}


@given(st.binary(max_size=30) | st.binary(max_size=12).map(lambda more: b"\x81\xaalmq.reason" + more))
def test_malformed_attributes_end_no_replica(packed: bytes) -> None:
    assert type(with_reason(packed, Reason(b"why", ROOM))) is bytes


@pytest.mark.parametrize("place", list(Place))
def test_a_message_shows_its_last_reason(place: Place) -> None:
    driver = Driver()
    push(driver, tenant="a", weight=5)
    refuse(driver, b"first", place)
    assert delivered(driver) == {"tenant": "a", "weight": 5, "lmq.reason": "first"}
    refuse(driver, b"second", place)
    assert delivered(copied_driver(driver)) == {"tenant": "a", "weight": 5, "lmq.reason": "second"}


def copied_driver(driver: Driver) -> Driver:
    return Driver(copied(driver.machine))


def test_a_nack_without_a_reason_keeps_the_last_one_and_its_form_in_the_log() -> None:
    driver = Driver()
    push(driver)
    refuse(driver, b"first")
    driver.nack(Q, *numbers(driver.pull(Q)))
    assert delivered(driver) == {"lmq.reason": "first"}
    assert Nack(Q, [1]).encode() == [Op.NACK, Q, [1], Place.TAIL, -1, False]
    explained = Nack(Q, [1], reason=b"why", attribute_bytes_max=ROOM)
    assert decode(explained.encode()) == explained


def test_a_dead_letter_keeps_its_reason() -> None:
    driver = Driver()
    driver.set(Q, retry=0, dead_letter_queue="dead")
    push(driver, tenant="a")
    refuse(driver, b"bad")
    assert delivered(driver, b"dead") == {"tenant": "a", "lmq.reason": "bad"}


def test_the_messages_of_a_push_share_no_reason() -> None:
    driver = Driver()
    driver.push(Q, b"one", b"two")
    refuse(driver, b"why")
    assert [attributes_of(one[3]) for one in driver.pull(Q, 2)] == [{}, {"lmq.reason": "why"}]


def test_a_reason_counts_to_the_bytes_of_the_queue() -> None:
    driver = Driver()
    driver.set(Q, retry=5)
    push(driver)
    state = driver.machine.state
    for reason in (b"why", b"a longer one", b"x"):
        refuse(driver, reason)
        size = 4 + len(pack_attributes({"lmq.reason": reason.decode()}))
        assert state.queues[Q].store.body_bytes == state.totals.body_bytes == size
    driver.ack(Q, *numbers(driver.pull(Q)))
    assert state.queues[Q].store.body_bytes == state.totals.body_bytes == 0


@pytest.mark.parametrize("room", [0, 1, 16, 17, 18, 19, 20, 60])
def test_a_reason_is_cut_to_the_room_that_the_attributes_leave(room: int) -> None:
    driver = Driver()
    push(driver, a="x" * 100)
    used = len(pack_attributes({"a": "x" * 100}))
    refuse(driver, "ščť".encode(), bytes_max=used + room)
    found = delivered(driver)
    assert len(pack_attributes(found)) <= used + room
    assert "ščť".startswith(found.get("lmq.reason", ""))
    assert room < 60 or found["lmq.reason"] == "ščť"


def test_a_message_with_the_most_attributes_keeps_no_reason() -> None:
    driver = Driver()
    attributes = {f"a{number}": number for number in range(ATTRIBUTES_MAX)}
    push(driver, **attributes)
    refuse(driver, b"why")
    assert delivered(driver) == attributes


def test_a_compound_message_keeps_no_reason() -> None:
    driver = Driver()
    driver.set(Q, accum=10)
    driver.push(Q, b"one")
    driver.push(Q, b"two")
    driver.wait(10)
    refuse(driver, b"why")
    assert delivered(driver) == {}


@pytest.mark.parametrize(
    "fields",
    [
        (0, -1, False, b"x" * 1025, ROOM),
        (0, -1, False, b"\xff", ROOM),
        (0, -1, False, "text", ROOM),
        (0, -1, False, b"why", -1),
        (0, -1, False, b"why", None),
        (*UNDO, b"why", ROOM),
    ],
)
def test_a_malformed_reason_is_refused_and_settles_nothing(fields: tuple[Any, ...]) -> None:
    driver = Driver()
    push(driver)
    (number,) = numbers(driver.pull(Q))
    (fault,) = driver.batch([Op.NACK, Q, [number], *fields])
    assert isinstance(fault, Fault)
    (fault,) = driver.batch([Op.TRANSACTION, [[Op.NACK, Q, [number], *fields]]])
    assert isinstance(fault, Fault)
    assert driver.ack(Q, number) == [True]


def test_a_transaction_keeps_the_reason_and_counts_it_to_the_room() -> None:
    driver = Driver()
    push(driver)
    (number,) = numbers(driver.pull(Q))
    nack = [Op.NACK, Q, [number], Place.TAIL, -1, False, b"why", ROOM]
    more = [Op.PUSH_ROWS, Q, [[b"more", None, b"", None, []]]]
    driver.set(Q, max_size=10)
    assert driver.do(Op.TRANSACTION, [nack, more]).code == "full"
    driver.set(Q, max_size=100)
    assert driver.do(Op.TRANSACTION, [nack, more])[0] is True
    assert delivered(driver) == {"lmq.reason": "why"}


def test_a_view_does_not_see_a_later_reason() -> None:
    driver = Driver()
    push(driver, a=1)
    number = driver.pull_one(Q)[1]
    expected = records(driver.machine)
    view = driver.machine.freeze_view()
    driver.do(Op.NACK, Q, [number], Place.TAIL, -1, False, b"why", ROOM)
    assert [over_the_wire(record) for record in view.records()] == expected
    view.close()
