"""The operations of a queue as front ends call them: asynchronous, validated, independent of any protocol."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ...core import Machine, Op, PushFlag
from ...core.commands import Delivered
from ...core.hooked_names import HookedNames
from ...core.message import content_bytes
from ...core.properties import SYSTEM_DEFAULTS, Rule, settings_of
from ...wire.errors import LmqError
from ...wire.ids import ReceiptFormat
from ...wire.limits import NAME_BYTES_MAX, PULL_COUNT_MAX, PUSH_COUNT_MAX
from ...wire.properties import Properties, Rules, properties_bytes, rules_bytes
from ..proposer import Group, Proposer
from ..turns import Turns
from .info import QueueInfo, info_of
from .jobs import Jobs
from .listing import QueueList, QueuePage, list_queues
from .naming import no_queue
from .operations import QueueOperations
from .pattern_views import PatternViews
from .patterns import check_pattern
from .proposals import Proposals
from .pulls import Pulls, Ticket, Waiter
from .push_copies import push_copies
from .rules import check_rules
from .subscriptions import Subscriptions

__all__ = ["Delivery", "Part", "PushFlag", "PushItem", "QueueInfo", "QueueService"]

PULL_BYTES_MAX = 16 * 1024 * 1024
"""Most bytes of the bodies that a pull of several messages takes."""

HasRoom = Callable[[int], bool]


@dataclass(frozen=True, slots=True)
class PushItem:
    """One message to store.

    Attributes:
        content: the body.
        content_type: as the producer gave it, None if it gave none.
        headers: candidates for preserved headers, (lower-case name, value).
        key: idempotency key; a second push with it to the same queue within the window stores nothing.
    """

    content: bytes
    content_type: bytes | None = None
    headers: tuple[tuple[bytes, bytes], ...] = ()
    key: bytes | None = None


@dataclass(frozen=True, slots=True)
class Part:
    """One message inside a compound message."""

    content: bytes
    content_type: bytes | None
    headers: tuple[tuple[bytes, bytes], ...]


@dataclass(frozen=True, slots=True)
class Delivery:
    """One message under lease.

    Attributes:
        queue: the queue's name.
        id: the receipt, 36 bytes.
        compound: whether it was accumulated; then `parts` holds what was pushed and `content` is empty.
        retry: deliveries that remain after this one.
    """

    queue: bytes
    id: bytes
    compound: bool
    retry: int
    content: bytes
    content_type: bytes | None
    headers: tuple[tuple[bytes, bytes], ...]
    parts: tuple[Part, ...]


class QueueService(Proposals):
    """The service interface. Every asynchronous method raises `LmqError`.

    Args:
        pulls: takes pulls. The others are those of `Proposals`.

    Attributes:
        subscriptions: batch leases.
        operations: purge, move, suspend and resume.
        jobs: pushes of writers that number what they write.
    """

    def __init__(
        self,
        proposer: Proposer,
        pulls: Pulls,
        machine: Callable[[], Machine],
        views: PatternViews,
        turns: Turns,
        *,
        message_bytes_max: int,
        memory_bytes_max: int,
    ) -> None:
        super().__init__(
            proposer,
            machine,
            views,
            turns,
            message_bytes_max=message_bytes_max,
            memory_bytes_max=memory_bytes_max,
        )
        self.pulls = pulls
        self._hooked_rules: list[Rule] = []
        self._hooked_by_rules: frozenset[bytes] = frozenset()
        self._receipts: ReceiptFormat | None = None
        self.subscriptions = Subscriptions(self)
        self.operations = QueueOperations(self)
        self.jobs = Jobs(self)
        self._flags = _FlagSink()

    def receipts(self) -> ReceiptFormat:
        """Message ids of this cluster life.

        Raises:
            LmqError: ``no_leader`` if the cluster has not been founded yet.
        """
        if self._receipts is None:
            raise LmqError("no_leader", "the cluster has not elected its first leader yet")
        return self._receipts

    def founded(self, salt: bytes) -> None:
        """Take the salt of message ids of the present cluster life, empty before it is known."""
        self._receipts = ReceiptFormat(salt) if salt else None

    def refuse(self, error: LmqError | None) -> None:
        """Refuse clients with `error`, waiting pulls included; what was taken goes on to its outcome. None serves them again."""
        if error is None:
            self.proposer.resume()
            self.pulls.reopen()
        else:
            self.proposer.retire(error)
            self.pulls.close(error)

    # --- push -----------------------------------------------------------------------------------------------------

    async def push(self, queue: bytes, items: Sequence[PushItem], owner: bytes = b"") -> list[int]:
        """Store messages; returns a `PushFlag` for each, in order.

        Their keys belong to `owner`. Raises ``key_reused`` if a key came with another body before; nothing is stored then.
        """
        self.check_name(queue, owner)
        if len(items) > PUSH_COUNT_MAX:
            raise LmqError("too_large", f"a batch may have at most {PUSH_COUNT_MAX} messages, this has {len(items)}")
        for item in items:
            self.check_push(len(item.content))
            self.check_key(item.key)
        if len(items) == 1 and not items[0].headers and items[0].key is None:
            return [await self._push_plain(queue, items[0])]
        rows = [_row(item) for item in items]
        size = sum(map(_row_bytes, items))
        command = [Op.PUSH_ITEMS, queue, rows, b"", *self.owned(owner)]
        flags: list[int] = await self.propose(command, size)
        return flags

    def _push_plain(self, queue: bytes, item: PushItem) -> asyncio.Future[int]:
        future: asyncio.Future[int] = self._loop.create_future()
        size = len(item.content) + len(item.content_type or b"") + 8
        tail = self.proposer.tail
        if (
            tail is not None
            and tail.sink is self._flags
            and tail.command[1] == queue
            and tail.command[2] == item.content_type
        ):
            tail.command[3].append(item.content)
            tail.tickets.append(future)
            self.proposer.grew(tail, size)
        else:
            command = [Op.PUSH, queue, item.content_type, [item.content], None, 0]
            self.proposer.add(Group(command, [future], self._flags), size + 64)
        return future

    async def push_all(self, pattern: bytes, item: PushItem, client: bytes) -> list[tuple[bytes, int]]:
        """Store a copy in every existing queue whose name the pattern finds; returns (queue, flag) sorted by queue.

        See `push_copies`.
        """
        return await push_copies(self, pattern, _row(item), client)

    # --- pull -----------------------------------------------------------------------------------------------------

    async def pull(
        self,
        queue: bytes,
        *,
        count: int = 1,
        wait_s: float | None = 0.0,
        has_room: HasRoom | None = None,
        owner: bytes = b"",
    ) -> list[Delivery]:
        """Lease up to `count` messages, waiting up to `wait_s` seconds (None: for ever) for the first.

        Of several no more are taken than have `PULL_BYTES_MAX` together. `has_room` is asked whether the client can take so many
        bytes; what it cannot take is put back, uncharged, and the error is ``overloaded``.

        Cancelling the task forgets the wait; a message already taken for it is put back, uncharged.
        """
        self.check_name(queue, owner)
        if not 0 < count <= PULL_COUNT_MAX:
            raise LmqError("bad_request", f"a pull takes 1 to {PULL_COUNT_MAX} messages, not {count}")
        return await self._wait_for(self.pulls.start, queue, (count, wait_s), has_room)

    async def pull_any(
        self, pattern: bytes, client: bytes, *, wait_s: float | None = 0.0, has_room: HasRoom | None = None
    ) -> Delivery | None:
        """Lease one message from any queue whose name the pattern finds, the one that is due first. See `pull`."""

        def start(pattern: bytes, ticket: Ticket) -> None:
            self.pulls.start_any(pattern, ticket, client)

        found = await self._wait_for(start, pattern, (1, wait_s), has_room)
        return found[0] if found else None

    async def _wait_for(
        self,
        start: Callable[[bytes, Ticket], None],
        key: bytes,
        wanted: tuple[int, float | None],
        has_room: HasRoom | None,
    ) -> list[Delivery]:
        receipts = self.receipts()
        pulls = self.pulls
        puller = _Pull(self._loop.create_future())
        start(key, (puller, None, *wanted))
        try:
            delivered = await puller.future
        except asyncio.CancelledError:
            puller.closed = True
            pulls.abandon(puller)
            if puller.future.done() and not puller.future.cancelled() and puller.future.exception() is None:
                pulls.put_back(puller.future.result())
            raise
        taken, size_bytes = _first_of(delivered)
        if has_room is not None and delivered and not has_room(size_bytes):
            pulls.put_back(delivered)
            raise LmqError(
                "overloaded", "the client leaves too much unread for another message; read it, then try again"
            )
        if taken < len(delivered):
            pulls.put_back(delivered[taken:])
        return [render(receipts, one) for one in delivered[:taken]]

    def give_back(self, deliveries: Sequence[Delivery]) -> None:
        """Return deliveries that did not reach their client: uncharged and in their old places. Nothing waits for it."""
        parse = self.receipts().parse
        by_queue: dict[bytes, list[int]] = {}
        for one in deliveries:
            by_queue.setdefault(one.queue, []).append(parse(one.id))
        self.pulls.put_back_numbers(by_queue)

    # --- settle ---------------------------------------------------------------------------------------------------

    async def ack(self, queue: bytes, ids: Sequence[bytes]) -> list[bool]:
        """Settle deliveries: the messages are gone. Raises ``queue_not_found``."""
        return await self._settle(Op.ACK, queue, ids)

    async def nack(self, queue: bytes, ids: Sequence[bytes]) -> list[bool]:
        """Give messages back; the delivery stays charged. Raises ``queue_not_found``."""
        return await self._settle(Op.NACK, queue, ids)

    async def extend(self, queue: bytes, ids: Sequence[bytes]) -> list[bool]:
        """Let leases end a full timeout from now. Raises ``queue_not_found``."""
        return await self._settle(Op.EXTEND, queue, ids)

    async def _settle(self, op: Op, queue: bytes, ids: Sequence[bytes]) -> list[bool]:
        receipts = self.receipts()
        if len(queue) > NAME_BYTES_MAX:
            raise no_queue(queue)
        numbers = [receipts.parse(one) for one in ids]
        results: list[bool] | None = await self.propose([op, queue, numbers], 64 + 12 * len(numbers))
        if results is None:
            raise no_queue(queue)
        return results

    # --- properties and the rest ----------------------------------------------------------------------------------

    async def set_properties(self, queue: bytes, properties: Properties, owner: bytes = b"") -> None:
        """Set some of a queue's own properties, keep the others; creates the queue."""
        self.check_name(queue, owner)
        self.check_room()
        await self.propose(
            [Op.SET_PROPERTIES, queue, [list(pair) for pair in properties]], 64 + properties_bytes(properties)
        )

    async def clear_properties(self, queue: bytes, owner: bytes = b"") -> None:
        """Forget a queue's own properties; creates the queue."""
        self.check_name(queue, owner)
        await self.propose([Op.CLEAR_PROPERTIES, queue], 64)

    async def delete(self, queue: bytes) -> bool:
        """Delete a queue with its messages and properties; False if it does not exist. Waiting pulls stay."""
        return len(queue) <= NAME_BYTES_MAX and bool(await self.propose([Op.DELETE, queue], 64))

    async def set_defaults(self, rules: Rules) -> None:
        """Replace the default rules. Raises ``bad_pattern``, and ``bad_property`` if they are too many."""
        check_rules(rules)
        rows = [[pattern.encode(), [list(pair) for pair in properties]] for pattern, properties in rules]
        await self.propose([Op.SET_DEFAULTS, rows], 64 + rules_bytes(rules))

    # --- local reads ----------------------------------------------------------------------------------------------

    def properties(self, queue: bytes) -> dict[str, Any]:
        """Effective properties, keys in alphabetical order: accum (ms), hooks if set, retry, timeout (s)."""
        return self.machine().properties(queue)

    def defaults(self) -> Rules:
        """The default rules as they were set."""
        return [
            (rule.pattern.decode(), [(name, value) for name, value in rule.properties]) for rule in self.machine().rules
        ]

    def queue_names(self) -> list[bytes]:
        """Names of all queues, sorted."""
        return sorted(self.machine().queues)

    async def list_queues(self, wanted: QueueList, client: bytes) -> QueuePage:
        """A page of the list of queues, see `list_queues`."""
        return await list_queues(self.machine, wanted, self.turns, client)

    def own_properties(self, queue: bytes) -> dict[str, Any]:
        """Properties set on the queue itself, keys in alphabetical order; see `properties`."""
        found = self.machine().queues.get(queue)
        return {} if found is None else dict(sorted(found.own.items()))

    def queue(self, name: bytes) -> QueueInfo | None:
        """Statistics of a queue, None if it does not exist."""
        machine = self.machine()
        queue = machine.queues.get(name)
        return None if queue is None else info_of(queue, machine.now_us)

    def preserved_headers(self) -> tuple[HookedNames, frozenset[bytes]]:
        """Lower-case names of request headers that the hooks of any queue, and those of any rule, ask to keep."""
        machine = self.machine()
        if machine.rules is not self._hooked_rules:
            self._hooked_rules, self._hooked_by_rules = machine.rules, _hooked_by(machine.rules)
        return machine.hooked, self._hooked_by_rules

    def check_pattern(self, pattern: bytes) -> None:
        """Refuse a regular expression that cannot be used. Raises ``bad_pattern``."""
        check_pattern(pattern)


def _hooked_by(rules: Iterable[Rule]) -> frozenset[bytes]:
    hooks = [dict(rule.properties).get("hooks", ()) for rule in rules]
    wanted = (settings_of({**SYSTEM_DEFAULTS, "hooks": one}).preserved for one in hooks)
    return frozenset(name for names in wanted for name in names)


def _first_of(delivered: list[Delivered]) -> tuple[int, int]:
    """How many deliveries have at most `PULL_BYTES_MAX` together, the first in any case, and their bytes."""
    size_bytes = 0
    for count, one in enumerate(delivered):
        more = content_bytes(one[3].content)
        if count and size_bytes + more > PULL_BYTES_MAX:
            return count, size_bytes
        size_bytes += more
    return len(delivered), size_bytes


def render(receipts: ReceiptFormat, delivered: Delivered) -> Delivery:
    """A delivery of the core with its receipt."""
    name, number, remaining, message = delivered
    content_type, headers = message.meta
    if isinstance(message.content, bytes):
        return Delivery(name, receipts.format(number), False, remaining, message.content, content_type, headers, ())
    parts = tuple(Part(part.content, part.content_type, part.headers) for part in message.content)
    return Delivery(name, receipts.format(number), True, remaining, b"", content_type, headers, parts)


def _row_bytes(item: PushItem) -> int:
    headers = sum(len(name) + len(value) + 8 for name, value in item.headers)
    return len(item.content) + len(item.content_type or b"") + headers + 64


def _row(item: PushItem) -> list[Any]:
    return [item.content, item.content_type, [list(header) for header in item.headers], item.key]


class _FlagSink:
    """Groups of plain pushes, a future for each flag."""

    def completed(self, group: Group, flags: list[int]) -> None:
        for future, flag in zip(group.tickets, flags, strict=True):
            if not future.done():
                future.set_result(flag)

    def failed(self, group: Group, error: LmqError) -> None:
        for future in group.tickets:
            if not future.done():
                future.set_exception(LmqError(error.code, error.message))


class _Pull:
    """A coroutine that waits for messages (`Puller`)."""

    __slots__ = ("closed", "future", "waiting")

    def __init__(self, future: asyncio.Future[list[Delivered]]) -> None:
        self.future = future
        self.closed = False
        self.waiting: set[Waiter] = set()

    def pulled(self, _token: Any, delivered: list[Delivered]) -> None:
        if not self.future.done():
            self.future.set_result(delivered)

    def pull_failed(self, _token: Any, error: LmqError) -> None:
        if not self.future.done():
            self.future.set_exception(error)
