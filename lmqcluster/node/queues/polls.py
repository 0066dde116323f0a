"""Queues whose messages are named by id and tag, for protocols: polls, updates, deletions, limits, API keys."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from ...core import Queue
from ...core.dedup.attempts import attempt_key
from ...core.log.commands import Create, DeletePolled, Poll, PushRows, SetApiKey, SetPollLimits, Update
from ...core.log.results import TagState
from ...core.queue.limits import POLL_COUNTERS, Endpoint, PollLimits
from ...core.queue.message_index import tag_of
from ...wire.errors import LmqError
from ...wire.limits import NAME_BYTES_MAX, PULL_COUNT_MAX, PUSH_COUNT_MAX
from .pulls.pull_options import PullOptions
from .pulls.wait_lists import polls_are_suspended
from .sending.naming import no_queue
from .sending.push_items import SECONDS_MAX as DELAY_S_MAX
from .sending.push_items import PushItem, PushOptions

if TYPE_CHECKING:
    from .pulls.deliveries import Delivery
    from .pulls.pulls import PullRequest, Pulls
    from .sending.command_sender import CommandSender

__all__ = ["Limits", "PollAttempt", "Polled", "PolledQueues", "QueueMetrics"]

HasRoom = Callable[[int], bool]


class WaitFor(Protocol):
    """The function with which the service waits for messages; see `QueueService.pull`."""

    def __call__(
        self,
        start: Callable[[bytes, PullRequest], object],
        key: bytes,
        wanted: tuple[int, float | None],
        has_room: HasRoom | None,
        *,
        until: asyncio.Future[None] | None = None,
    ) -> Coroutine[Any, Any, list[Delivery]]: ...


RETRY_WITHOUT_END = (1 << 31) - 1
"""Redeliveries of a message in a queue created here, unless its properties change: practically unlimited."""
SECONDS_MAX = 1 << 39
"""Longest time; longer ones are shortened to it."""
EXACT_LEASES_MAX = 10_000
_ROW_BYTES = 112
"""Approximate upper bound of the bytes that a message takes in the log beside its body."""
_SWEEP_MIN = 64


class Polled(NamedTuple):
    """A polled message, and the tag that names it from now on."""

    delivery: Delivery
    tag: int


class PollAttempt(NamedTuple):
    """The name under which a client may repeat a poll.

    Attributes:
        owner: the owner of the names.
        text: 1 to 255 bytes; empty for none.
        remember_us: for how long it is remembered, at most 300 seconds.
    """

    owner: bytes
    text: bytes
    remember_us: int


_NO_ATTEMPT = PollAttempt(b"", b"", 0)


class Limits(NamedTuple):
    """Limits of requests on one queue, or on all queues.

    Attributes:
        suspended: by request kind: ``delete``, ``poll``, ``push``, ``update``.
        throttle: largest number of polls, and the period in seconds; None if unlimited.
    """

    suspended: dict[str, bool]
    throttle: tuple[int, int] | None


class QueueMetrics(NamedTuple):
    """Figures of one queue, under queued's names.

    Attributes:
        messages: number of messages, hidden ones included.
        counters: of requests and messages.
        gauges: times in seconds from now.
    """

    messages: int
    counters: dict[str, int]
    gauges: dict[str, int]


class PolledQueues:
    """The operations. Every asynchronous method raises `LmqError`."""

    def __init__(
        self,
        sender: CommandSender,
        pulls: Callable[[], Pulls],
        wait_for: WaitFor,
    ) -> None:
        self._sender = sender
        self._pulls = pulls
        self._wait_for = wait_for
        # Polls since the node's start that found nothing and left no trace in the log.
        self._empty: Counter[bytes] = Counter()

    # --- queues ---------------------------------------------------------------------------------------------------

    async def create(self, queue: bytes, owner: bytes = b"") -> bool:
        """Create a queue; False if it exists already."""
        self._sender.check_name(queue, b"")
        pairs = [["retry", RETRY_WITHOUT_END]]
        return bool(await self._sender.propose(Create(queue, owner, pairs, indexed=True), 96))

    # --- messages -------------------------------------------------------------------------------------------------

    async def push(
        self, queue: bytes, contents: Sequence[bytes], hidden_s: Sequence[float], key: bytes | None, owner: bytes = b""
    ) -> list[int]:
        """Store all messages or none in an existing queue; return their ids.

        Args:
            queue: its name.
            contents: the bodies.
            hidden_s: for each message, the seconds until it becomes visible.
            key: idempotency key of the whole push; None for none.
            owner: owner of the key.
        """
        sender = self._sender
        self._check(queue)
        if len(contents) > PUSH_COUNT_MAX:
            raise LmqError("too_large", f"a push may have at most {PUSH_COUNT_MAX} messages, this has {len(contents)}")
        sizes = list(map(len, contents))
        sender.check_push(max(sizes, default=0))
        rows = self._rows(contents, hidden_s, key)
        size = sum(sizes) + _ROW_BYTES * len(rows)
        results = await sender.propose(PushRows(queue, rows, owner, must_exist=True), size)
        return [sequence for _flag, sequence in results]

    def _rows(self, contents: Sequence[bytes], hidden_s: Sequence[float], key: bytes | None) -> list[list[Any] | bytes]:
        """Return the rows of a push.

        A message without a key that is hidden for as long as the one before it needs only its body as a row.
        """
        rows: list[list[Any] | bytes] = []
        if key is not None:
            for place, (body, delay_s) in enumerate(zip(contents, hidden_s, strict=True)):
                own_key = b"%s %d" % (key, place)
                self._sender.check_key(own_key)
                rows.append(self._row(body, own_key, delay_s))
            return rows
        before_s: float | None = None
        for body, delay_s in zip(contents, hidden_s, strict=True):
            rows.append(body if delay_s == before_s else self._row(body, None, delay_s))
            before_s = delay_s
        return rows

    def _row(self, body: bytes, key: bytes | None, delay_s: float) -> list[Any]:
        # A delay of 0 is sent too: without one, the queue's property delay would apply.
        item = PushItem(body, key=key, options=PushOptions(delay_s=min(delay_s, DELAY_S_MAX)))
        return item.row(self._sender.due_times)

    async def poll(
        self,
        queue: bytes,
        *,
        count: int,
        hide_s: int,
        takes_hidden: bool = False,
        wait_s: float = 0.0,
        has_room: HasRoom | None = None,
        until: asyncio.Future[None] | None = None,
        attempt: PollAttempt | None = None,
    ) -> list[Polled]:
        """Take up to `count` messages and hide them for `hide_s` seconds; see `QueueService.pull` for the rest.

        Args:
            queue: an existing queue.
            count: largest number of messages, capped at the limit of a pull.
            hide_s: seconds; with 0 or less the messages can be polled again at once.
            takes_hidden: take hidden messages too; such a poll does not wait.
            wait_s: seconds to wait for the first message.
            has_room: as in a pull.
            until: the wait also ends when this is done.
            attempt: names the poll; a poll that repeats it gets the same messages with the same tags, see `Poll`.
        """
        self._check(queue)
        options = PullOptions(Poll, (_microseconds(hide_s), takes_hidden, False, *(attempt or _NO_ATTEMPT)))
        wanted = (min(count, PULL_COUNT_MAX), 0.0 if takes_hidden or not count else wait_s)
        start: Callable[..., object] = self._pulls().start
        if not takes_hidden and await self._is_empty(queue, attempt or _NO_ATTEMPT):
            if not wanted[1]:
                self._note_empty(queue)
                return []
            start = self._pulls().wait
        begin = partial(start, options=options)
        delivered = await self._wait_for(begin, queue, wanted, has_room, until=until)
        return [Polled(one, tag_of(one.number)) for one in delivered]

    async def _is_empty(self, name: bytes, attempt: PollAttempt) -> bool:
        """Return whether a poll would find nothing and change no state, so that it needs no log entry."""
        if not self._seems_empty(name, attempt):
            return False
        await self._sender.look_up()
        return self._seems_empty(name, attempt)

    def _seems_empty(self, name: bytes, attempt: PollAttempt) -> bool:
        state, now_us = self._sender.state(), self._pulls().clock.now_us()
        queue = state.queues.get(name)
        if queue is None or queue.is_exclusive() or state.poll_limits.throttle or _limits_of(queue).throttle:
            return False
        head_us = queue.head_us()
        if (head_us is not None and head_us <= now_us) or polls_are_suspended(state, queue):
            return False
        owner, text, _remember_us = attempt
        return not (text and state.received.find(owner, attempt_key(name, text), now_us))

    def _note_empty(self, name: bytes) -> None:
        self._empty[name] += 1
        queues = self._sender.state().queues
        if len(self._empty) > 2 * len(queues) + _SWEEP_MIN:
            self._empty = Counter({one: count for one, count in self._empty.items() if one in queues})

    def put_back(self, polled: Sequence[Polled]) -> None:
        """Return messages that did not reach their client. The call does not wait for the outcome."""
        by_queue: dict[bytes, list[int]] = {}
        for one in polled:
            by_queue.setdefault(one.delivery.queue, []).append(one.delivery.number)
        self._pulls().put_back_numbers(by_queue)

    async def update(
        self, queue: bytes, message: int, tag: int, hide_s: int, *, keeps_tag: bool = False
    ) -> tuple[TagState, int]:
        """Hide a message for `hide_s` seconds if its tag is valid; return the state of the tag, and the tag from now on or 0.

        That is a new one unless the message `keeps_tag`.
        """
        self._check(queue)
        command = Update(queue, message, tag, _microseconds(hide_s), keeps_tag)
        found = await self._sender.propose(command, 96)
        return found.state, tag_of(found.number)

    async def delete(self, queue: bytes, pairs: Sequence[tuple[int, int]]) -> list[TagState]:
        """Delete messages by id and tag; return the state of each tag. Those whose tag is valid are deleted."""
        self._check(queue)
        if len(pairs) > PULL_COUNT_MAX:
            raise LmqError("too_large", f"a request may delete at most {PULL_COUNT_MAX} messages, not {len(pairs)}")
        found: list[TagState] = await self._sender.propose(DeletePolled(queue, pairs), 64 + 20 * len(pairs))
        return found

    def _check(self, queue: bytes) -> None:
        if len(queue) > NAME_BYTES_MAX:
            raise no_queue(queue)

    # --- limits ---------------------------------------------------------------------------------------------------

    async def suspend(self, queue: bytes, switches: Mapping[str, bool | None]) -> dict[str, bool]:
        """Suspend or resume kinds of requests on a queue, or, with an empty name, on all queues.

        Return which kinds are suspended now.
        """
        self._check(queue)
        given = [switches.get(endpoint.name.lower()) for endpoint in Endpoint]
        return _named(await self._sender.propose(SetPollLimits(queue, given), 64 + len(queue)))

    async def throttle(self, queue: bytes, throttle: tuple[int, int] | None) -> None:
        """Limit the polls of a queue, or, with an empty name, those of all queues together.

        `throttle` is a number of polls and a period in seconds.
        """
        self._check(queue)
        polls, seconds = throttle or (None, 1)
        await self._sender.propose(SetPollLimits(queue, None, (polls, seconds * 1_000_000)), 64 + len(queue))

    async def limits(self, queue: bytes) -> Limits:
        """Return the limits of requests on a queue, or, with an empty name, on all queues."""
        await self._sender.look_up()
        limits = self._limits(queue)
        throttle = limits.throttle and (limits.throttle[0], limits.throttle[1] // 1_000_000)
        return Limits(_named(limits.suspended), throttle)

    def _limits(self, name: bytes) -> PollLimits:
        state = self._sender.state()
        return _limits_of(self._existing(name)) if name else state.poll_limits

    def _existing(self, name: bytes) -> Queue:
        queue = self._sender.state().queues.get(name)
        if queue is None:
            raise no_queue(name)
        return queue

    # --- figures --------------------------------------------------------------------------------------------------

    async def metrics(self, name: bytes) -> QueueMetrics:
        """Return figures of a queue.

        Empty polls are those in the log, of all nodes, and those of this node that are not in the log.
        """
        await self._sender.look_up()
        found = self.figures(self._existing(name), EXACT_LEASES_MAX)
        found.counters["empty_poll"] += self._empty[name]
        return found

    def figures(self, queue: Queue, exact_max: int) -> QueueMetrics:
        """Return figures of a queue from the replicated state.

        If the queue has more leases than `exact_max`, the time of the last message is a lower bound.
        """
        now_us = self._pulls().clock.now_us()
        first_us, last_us = queue.store.earliest_us(), _last_us(queue, exact_max)
        counters = dict(zip(POLL_COUNTERS, _limits_of(queue).counters, strict=True))
        counters["successful_update"] = counters.pop("updated")
        counters |= {
            "successful_push": queue.counters.pushed_total,
            "successful_poll": queue.counters.pulled_total,
            "successful_delete": queue.counters.acked_total,
        }
        gauges = {
            "first_message_visibility_timeout_sec": 0 if first_us is None else max(0, first_us - now_us) // 1_000_000,
            "last_message_visibility_timeout_sec": 0 if last_us is None else max(0, last_us - now_us) // 1_000_000,
            "longest_unpolled_message_sec": 0 if first_us is None else max(0, now_us - first_us) // 1_000_000,
        }
        return QueueMetrics(len(queue), counters, gauges)

    def unlogged_empty_polls(self) -> Mapping[bytes, int]:
        """Return, by queue, the polls of this node that found nothing and left no trace in the log."""
        return self._empty

    def totals(self) -> dict[str, int]:
        """Return the counters of all queues together, deleted ones included, as this node knows them."""
        counters = dict(zip(POLL_COUNTERS, self._sender.state().poll_limits.counters, strict=True))
        counters["empty_poll"] += self._empty.total()
        return counters

    # --- API keys -------------------------------------------------------------------------------------------------

    async def api_keys(self) -> list[tuple[bytes, bytes]]:
        """Return the digest of each key, with the prefix of the names of the queues that it opens."""
        await self._sender.look_up()
        return list(self._sender.state().api_keys)

    async def set_api_key(self, digest: bytes, prefix: bytes) -> None:
        """Add a key, or change its prefix."""
        await self._sender.propose(SetApiKey(digest, prefix), 64 + len(digest) + len(prefix))

    async def delete_api_key(self, digest: bytes) -> bool:
        """Delete a key; False if there is none."""
        return bool(await self._sender.propose(SetApiKey(digest, None), 64 + len(digest)))


def _microseconds(seconds: int) -> int:
    return max(-SECONDS_MAX, min(SECONDS_MAX, seconds)) * 1_000_000


def _named(suspended: Sequence[bool]) -> dict[str, bool]:
    return {endpoint.name.lower(): bool(suspended[endpoint]) for endpoint in Endpoint}


def _limits_of(queue: Queue) -> PollLimits:
    """Return the limits of a queue; the initial ones if no request has used its message index yet."""
    index = None if queue.store.rich is None else queue.store.rich.index
    return PollLimits() if index is None else index.limits


def _last_us(queue: Queue, exact_max: int) -> int | None:
    """Return when the last message becomes visible.

    If the queue has more leases than `exact_max`, the time is a lower bound for the leased messages.
    """
    times = [] if queue.store.rich is None or (last := queue.store.rich.scheduled.last()) is None else [last.due_us]
    if len(queue.store.leases) <= exact_max:
        times += [message.due_us for message in queue.store.leases.messages.values()]
    else:
        times.append(queue.store.leases.bound_us())
    first_us = queue.store.earliest_us()
    return max(times, default=first_us)
