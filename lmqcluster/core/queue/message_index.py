"""Finds the messages of one queue by their ids, which are their sequences, in O(1).

What is known of a message is the number of its latest delivery or update, of which its *tag* is made: whoever names an id has to
name the present tag too, so that a consumer that was overtaken can do no harm. The tag of a message that was never delivered
is 0.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..messages.message import Message, RichMessage
from .limits import PollLimits

__all__ = ["MessageIndex", "tag_of"]

_TAGS = (1 << 32) - 1


def tag_of(number: int) -> int:
    """The tag that a delivery or an update gives a message: 32 bits, and another one than the 4,294,967,294 before it."""
    return (number - 1) % _TAGS + 1 if number else 0


class MessageIndex:
    """The index of one queue.

    It holds those messages with traits that stand in line, and the numbers of those that have one, leased or in line; so it is
    never larger than the queue. Messages that were there before the index are found once they have been delivered.

    Attributes:
        since: sequence of the last message before the index was made.
        limits: switches, throttle and counters of the queue.
    """

    __slots__ = ("_lined", "_numbers", "limits", "since")

    def __init__(self, since: int) -> None:
        self.since = since
        self.limits = PollLimits()
        self._lined: dict[int, RichMessage] = {}
        self._numbers: dict[int, int] = {}

    def entered(self, message: RichMessage) -> None:
        """The message has come in line."""
        self._lined[message.sequence] = message

    def entered_all(self, messages: Iterable[RichMessage]) -> None:
        """They have come in line."""
        self._lined.update([(message.sequence, message) for message in messages])

    def taken(self, message: RichMessage) -> None:
        """The message has left its line."""
        self._lined.pop(message.sequence, None)

    def gone(self, message: RichMessage) -> None:
        """The message has left the queue."""
        self._numbers.pop(message.sequence, None)

    def delivered(self, messages: Iterable[Message], first: int) -> None:
        """Messages were delivered under the consecutive numbers from `first`."""
        for number, message in enumerate(messages, first):
            if isinstance(message, RichMessage):
                self._numbers[message.sequence] = number

    def number(self, sequence: int, tag: int) -> int | None:
        """The number of the latest delivery or update of a message, 0 for none; None if that has another tag."""
        number = self._numbers.get(sequence, 0)
        if tag_of(number) != tag or (not number and sequence <= self.since):
            return None
        return number

    def in_line(self, sequence: int) -> RichMessage | None:
        """The message if it stands in line."""
        return self._lined.get(sequence)

    def row(self) -> list[Any]:
        """What a snapshot says of it, the numbers aside."""
        return [self.since, *self.limits.row()]

    def frozen(self) -> list[tuple[int, int]]:
        """Sequences and numbers as they are now."""
        return list(self._numbers.items())

    def load(self, rows: Iterable[tuple[int, int]]) -> None:
        """Add sequences and numbers of a snapshot, in the order in which they were written."""
        self._numbers.update(rows)
