"""Finds the messages of one queue by id, which is the sequence, in O(1).

The index holds the number of each message's latest delivery or update; the *tag* is derived from it. A client that
names an id must also name the current tag, which fences off consumers whose delivery was superseded. The tag of a
message that was never delivered is 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ..messages.message import Message, RichMessage
from .limits import PollLimits

__all__ = ["MessageIndex", "tag_of"]

_TAGS = (1 << 32) - 1


def tag_of(number: int) -> int:
    """Return the tag of a delivery or an update: 32 bits, different from the 4,294,967,294 before it."""
    return (number - 1) % _TAGS + 1 if number else 0


class MessageIndex:
    """The index of one queue.

    It holds the messages with traits that are in line, and the numbers of those that have one, leased or in line, so
    it is never larger than the queue. Messages older than the index are found once they have been delivered, and so are
    those that were pushed without options to a queue made over SQS.

    Attributes:
        since: sequence of the last message before the index was made.
        limits: switches, throttle and counters of the queue.
    """

    __slots__ = ("_again", "_lined", "_numbers", "limits", "since")

    def __init__(self, since: int) -> None:
        self.since = since
        self.limits = PollLimits()
        self._lined: dict[int, RichMessage] = {}
        self._numbers: dict[int, int] = {}
        # The messages whose latest delivery was returned to a repeated poll.
        self._again: dict[int, None] = {}

    def entered(self, message: RichMessage) -> None:
        """Add a message that entered a line."""
        self._lined[message.sequence] = message

    def entered_all(self, messages: Iterable[RichMessage]) -> None:
        """Add messages that entered a line."""
        self._lined.update([(message.sequence, message) for message in messages])

    def taken(self, message: RichMessage) -> None:
        """Remove a message that left its line."""
        self._lined.pop(message.sequence, None)

    def on_removed(self, message: RichMessage) -> None:
        """Remove a message that left the queue."""
        self._numbers.pop(message.sequence, None)
        self._again.pop(message.sequence, None)

    def delivered(self, messages: Sequence[Message], first: int) -> None:
        """Note deliveries under the consecutive numbers from `first`."""
        for number, message in enumerate(messages, first):
            if isinstance(message, RichMessage):
                self._numbers[message.sequence] = number
        if self._again:
            for message in messages:
                self._again.pop(message.sequence, None)

    def delivered_again(self, sequence: int) -> None:
        """Note that the latest delivery of a message was returned to a repeated poll."""
        self._again[sequence] = None

    def may_undo(self, message: Message) -> bool:
        """Return whether the latest delivery of a message may be undone: not if another answer has it too."""
        return message.sequence not in self._again

    def number(self, sequence: int, tag: int) -> int | None:
        """Return the number of a message's latest delivery or update, 0 for none; None if the tag is outdated."""
        number = self._numbers.get(sequence, 0)
        if tag_of(number) != tag or (not number and sequence <= self.since):
            return None
        return number

    def has_number(self, sequence: int) -> bool:
        """Return whether the message is in the queue and was delivered or updated."""
        return sequence in self._numbers

    def in_line(self, sequence: int) -> RichMessage | None:
        """Return the message if it is in line."""
        return self._lined.get(sequence)

    def row(self) -> list[Any]:
        """Return the snapshot row of the index, without the numbers."""
        return [self.since, *self.limits.row()]

    def frozen(self) -> list[tuple[int, int]]:
        """Return a copy of the sequences and numbers; the number is negative if the delivery was returned again."""
        if not self._again:
            return list(self._numbers.items())
        return [
            (sequence, -number if sequence in self._again else number) for sequence, number in self._numbers.items()
        ]

    def load(self, rows: Iterable[tuple[int, int]]) -> None:
        """Add sequences and numbers of a snapshot, in the order in which they were written; see `frozen`."""
        for sequence, number in rows:
            self._numbers[sequence] = abs(number)
            if number < 0:
                self._again[sequence] = None
