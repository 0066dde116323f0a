"""The node's side of repeated requests: groups, and which connections may repeat."""

from __future__ import annotations

from lmqcluster.ports.front_ends.channel import Operation
from lmqcluster.ports.front_ends.repeats import Answer, Repeats
from lmqcluster.wire.repeats import RepeatedCall

from .recorder import Recorder

CALL = RepeatedCall(b"q")


class Group:
    """A group that keeps what it begins."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.begun: list[tuple[int, bytes]] = []
        self.is_valid = True

    def start(self, connections: list[int], bodies: list[bytes]) -> bool:
        if self.is_valid:
            self.begun += zip(connections, bodies, strict=True)
        return self.is_valid


class Case:
    """The groups of one front end."""

    def __init__(self) -> None:
        self.channel = Recorder()
        self.repeats = Repeats(self.channel)
        self.made: list[Group] = []

    def offer(self, connection: int, identity: str = "a") -> int:
        """Return the number of the group that the connection may use."""
        group = self.repeats.offer(connection, identity, CALL, self._make)
        assert group in self.made
        operation, number, value = self.channel.sent[-1]
        assert (operation, number, value[1:]) == (Operation.REPEAT, connection, (b"q",))
        return int(value[0])

    def _make(self, answer: Answer) -> Group:
        self.made.append(Group(answer))
        return self.made[-1]

    def in_full(self) -> list[list[int]]:
        return [value for operation, _number, value in self.channel.sent if operation == Operation.IN_FULL]


def test_equal_requests_share_a_group() -> None:
    case = Case()
    one, two, other = case.offer(1), case.offer(2), case.offer(3, "b")
    assert one == two != other
    case.repeats.received(one, [1, 2], [b"x", b"y"])
    assert [group.begun for group in case.made] == [[(1, b"x"), (2, b"y")], []]
    assert case.in_full() == []
    case.made[0].answer([2, 1], b"before", b"after")
    assert case.channel.sent[-1] == (Operation.ANSWERS, 0, ([2, 1], b"before", b"after"))


def test_what_is_not_offered_comes_again_in_full() -> None:
    case = Case()
    number = case.offer(1)
    case.offer(2)
    case.offer(3, "b")
    case.repeats.end(2)
    case.repeats.received(number, [2, 1, 3, 4], [b"2", b"1", b"3", b"4"])
    assert case.made[0].begun == [(1, b"1")]
    assert case.in_full() == [[2, 3, 4]]


def test_a_group_ends_with_its_last_connection() -> None:
    case = Case()
    number = case.offer(1)
    case.offer(2)
    case.repeats.end(1)
    assert case.offer(3) == number
    case.repeats.end(2)
    case.repeats.end(3)
    case.repeats.end(3)
    case.repeats.received(number, [3], [b"x"])
    assert case.in_full() == [[3]]
    assert case.offer(1) != number
    assert len(case.made) == 2


def test_another_offer_replaces_the_last_one() -> None:
    case = Case()
    number, other = case.offer(1), case.offer(1, "b")
    case.repeats.received(number, [1], [b"x"])
    case.repeats.received(other, [1], [b"y"])
    assert case.in_full() == [[1]]
    assert [group.begun for group in case.made] == [[], [(1, b"y")]]


def test_a_group_that_is_not_valid_any_more() -> None:
    case = Case()
    number = case.offer(1)
    case.made[0].is_valid = False
    case.repeats.received(number, [1], [b"x"])
    assert case.in_full() == [[1]]
