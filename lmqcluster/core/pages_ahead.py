"""Which pages a batch needs, told before it is applied: a node that cannot read one waits for it instead of failing halfway.

Whether a page is in memory never changes a result, so none of this is part of what replicas have to agree on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, islice

from .backlogs import Backlogs
from .bodies import Body
from .command_layout import given_back, steps_of, stored_in, taken_from
from .commands import Command
from .queue import Queue

__all__ = ["PAGES_MAX", "pages_ahead"]

PAGES_MAX = 64
"""Most pages that are told of one batch; what else it needs is read when it is needed."""


def pages_ahead(queues: Mapping[bytes, Queue], backlogs: Backlogs, commands: Iterable[Command]) -> list[bytes]:
    """See `Machine.pages_ahead`."""
    found = dict.fromkeys(chunk.page for chunk in backlogs.absent_thin()) if backlogs.thin else {}
    if backlogs.paged_messages:
        found |= dict.fromkeys(islice(_of_lines(queues, commands), PAGES_MAX))
    if backlogs.paged_body_bytes:
        found |= dict.fromkeys(islice(_of_returned(queues, commands), PAGES_MAX))
    return list(islice(found, PAGES_MAX))


def _of_lines(queues: Mapping[bytes, Queue], commands: Iterable[Command]) -> Iterator[bytes]:
    """Pages of the chunks whose turn comes in the line of a queue."""
    taken: dict[bytes, int] = {}
    for command in chain.from_iterable(map(steps_of, commands)):
        names, count = taken_from(command)
        if not count:
            names, count = _discarded(queues, command)
        for name in names:
            taken[name] = taken.get(name, 0) + count
    for name, count in taken.items():
        queue = queues.get(name)
        if queue is not None and queue.backlog is not None:
            yield from (chunk.page for chunk in queue.backlog.absent(count - len(queue.ready)))


def _discarded(queues: Mapping[bytes, Queue], command: Command) -> tuple[list[bytes], int]:
    """A queue that discards what is old for a push, and about how much of it."""
    name, count = stored_in(command)
    queue = queues.get(name)
    options = None if queue is None else queue.settings.options
    return ([name], count) if options is not None and options.discard_old_when_full else ([], 0)


def _of_returned(queues: Mapping[bytes, Queue], commands: Iterable[Command]) -> Iterator[bytes]:
    """Pages of the bodies of leased messages that go back to a backlog, where messages stand with their bodies."""
    for command in chain.from_iterable(map(steps_of, commands)):
        name, numbers = given_back(command)
        queue = queues.get(name)
        if queue is None or queue.backlog is None:
            continue
        for number in numbers:
            message = queue.leases.messages.get(number)
            chunk = message.content.missing() if message is not None and isinstance(message.content, Body) else None
            if chunk is not None:
                yield chunk.page
