"""Pre-images: fields of messages as of the opening of a snapshot view, kept for those that change while it is read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from .message import Message, Meta, RichMessage

__all__ = ["PreImage", "PreImages"]

PreImage = tuple[int, int, int, int, int, Meta]
"""due_us, ready_us, remaining, delivered, first_us and meta of a message."""


class PreImages:
    """Fields of messages before their first change since the view was opened, by sequence.

    Contents are not kept: a body never changes, and a compound message only grows, so its number of parts suffices.

    Attributes:
        table: the fields by sequence.
    """

    __slots__ = ("_last_sequence", "table")

    def __init__(self, last_sequence: int) -> None:
        # Messages stored later are not part of the view.
        self._last_sequence = last_sequence
        self.table: dict[int, PreImage] = {}

    def keep(self, messages: Iterable[Message]) -> None:
        """Save the fields of messages that are about to change."""
        table, last_sequence = self.table, self._last_sequence
        for message in messages:
            sequence = message.sequence
            if sequence <= last_sequence and sequence not in table:
                table[sequence] = _fields(message)

    def meta(self, message: Message) -> Meta:
        """Return the meta of the message when the view was opened."""
        kept = self.table.get(message.sequence)
        return message.meta if kept is None else kept[-1]

    def take(self, message: Message) -> PreImage:
        """Return the fields of the message when the view was opened, and remove its pre-image."""
        kept = self.table.pop(message.sequence, None)
        return _fields(message) if kept is None else kept

    def keep_leased(self, leased: Mapping[int, Message], numbers: Iterable[int]) -> None:
        """Save the fields of the messages of those deliveries that are still leased."""
        self.keep([leased[number] for number in numbers if number in leased])


def _fields(message: Message) -> PreImage:
    first_us = message.first_us if isinstance(message, RichMessage) else 0
    return message.due_us, message.ready_us, message.remaining, message.delivered, first_us, message.meta
