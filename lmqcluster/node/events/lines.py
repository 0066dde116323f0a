"""Events of messages as JSON lines; `journal` describes the fields.

The event loop records plain numbers and a thread formats them, because messages change while the thread works.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import repeat
from typing import NamedTuple

__all__ = ["Answered", "Batch", "Deleted", "Event", "Moved", "Pulled", "Purged", "Pushed", "Record"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Batch = tuple[bytes, int]
"""The batch lease that deliveries were made for: subscription and epoch."""


class Pushed(NamedTuple):
    """Messages that a batch stored in a queue; `windows` is None if they were not accumulated."""

    queue: bytes
    messages: int
    size_bytes: int
    windows: int | None

    def lines(self, record: Record, node: str) -> Iterator[str]:
        """Yield one line for all messages."""
        windows = "" if self.windows is None else f',"windows":{self.windows}'
        head = _head(record, "push", self.queue, node)
        yield f'{head},"count":{self.messages},"bytes":{self.size_bytes}{windows}}}\n'


class Pulled(NamedTuple):
    """Deliveries from one queue: (number, sequence, wait in us, deliveries that remain, whether again, parts or 0)."""

    queue: bytes
    deliveries: list[tuple[int, int, int, int, bool, int]]
    batch: Batch | None = None

    def lines(self, record: Record, node: str) -> Iterator[str]:
        """Yield one line per delivery."""
        head = f'{_head(record, "pull", self.queue, node)},"id":"{record.id_prefix}'
        batch = _of_batch(self.batch)
        for number, sequence, wait_us, remaining, again, parts in self.deliveries:
            compound = f',"parts":{parts}' if parts else ""
            yield (
                f'{head}{number:012x}","sequence":{sequence},"wait_us":{wait_us},"retry_remaining":{remaining}'
                f',"redelivery":{"true" if again else "false"}{compound}{batch}}}\n'
            )


class Answered(NamedTuple):
    """Commands that settled or extended deliveries; `results` may be one value for all."""

    event: str
    queue: bytes
    numbers: Sequence[int]
    results: Sequence[bool] | bool
    batch: Batch | None = None

    def lines(self, record: Record, node: str) -> Iterator[str]:
        """Yield one line per delivery; number 0 stands for an id of another cluster and is written as null."""
        head = f'{_head(record, self.event, self.queue, node)},"id":'
        batch = _of_batch(self.batch)
        results = repeat(self.results, len(self.numbers)) if isinstance(self.results, bool) else self.results
        for number, ok in zip(self.numbers, results, strict=True):
            shown = f'"{record.id_prefix}{number:012x}"' if number else "null"
            yield f'{head}{shown},"ok":{"true" if ok else "false"}{batch}}}\n'


class Deleted(NamedTuple):
    """The deletion of a queue, if it existed."""

    queue: bytes
    existed: bool

    def lines(self, record: Record, node: str) -> Iterator[str]:
        """Yield one line."""
        yield f'{_head(record, "delete", self.queue, node)},"ok":{"true" if self.existed else "false"}}}\n'


class Purged(NamedTuple):
    """The removal of messages from a queue."""

    queue: bytes
    messages: int
    event: str = "purge"

    def lines(self, record: Record, node: str) -> Iterator[str]:
        """Yield one line for all messages."""
        yield f'{_head(record, self.event, self.queue, node)},"count":{self.messages}}}\n'


class Moved(NamedTuple):
    """A move of messages to another queue; with an empty name, back to the queues that they came from."""

    queue: bytes
    destination: bytes
    messages: int
    event: str = "move"

    def lines(self, record: Record, node: str) -> Iterator[str]:
        """Yield one line for all messages."""
        to = _name(self.destination) if self.destination else "null"
        yield f'{_head(record, self.event, self.queue, node)},"to":{to},"count":{self.messages}}}\n'


Event = Pushed | Pulled | Answered | Deleted | Purged | Moved


class Record(NamedTuple):
    """The events of one batch.

    Attributes:
        now_us: log time.
        id_prefix: prefix of the ids of this cluster's deliveries; the number follows in twelve hexadecimal digits.
        size: number of lines.
    """

    now_us: int
    id_prefix: str
    events: list[Event]
    size: int

    def lines(self, node: str) -> Iterator[str]:
        """Yield all lines; `node` is the node's name in JSON."""
        for event in self.events:
            yield from event.lines(self, node)


def _head(record: Record, event: str, queue: bytes, node: str) -> str:
    return f'{{"time":"{_time(record.now_us)}","event":"{event}","queue":{_name(queue)},"node":{node}'


def _of_batch(batch: Batch | None) -> str:
    return "" if batch is None else f',"subscription":{_name(batch[0])},"epoch":{batch[1]}'


@lru_cache(maxsize=16)
def _time(now_us: int) -> str:
    return f"{_EPOCH + timedelta(microseconds=now_us):%Y-%m-%dT%H:%M:%S.%fZ}"


@lru_cache(maxsize=10_000)
def _name(queue: bytes) -> str:
    # The HTTP interface shows names that are not UTF-8 in the same way.
    return json.dumps(queue.decode("utf-8", "backslashreplace"))
