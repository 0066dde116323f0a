"""The operations of a queue as front ends call them: asynchronous, validated, independent of any protocol."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from functools import partial
from typing import Any

from ...core import Machine, Op, PushFlag, Queue
from ...core.log import command_layout as layout
from ...core.log.command_layout import CONTENTS, OP, QUEUE, TYPE, Asked
from ...core.log.commands import Delivered, Place
from ...core.queue.properties import SYSTEM_DEFAULTS, Rule, settings_of
from ...core.state.hooked_names import HookedNames
from ...ports import ConnectionSlot
from ...wire.errors import LmqError, Outcome
from ...wire.ids import ReceiptFormat
from ...wire.limits import NAME_BYTES_MAX, PULL_COUNT_MAX, PUSH_COUNT_MAX
from ...wire.properties import Properties, Rules
from ..commit.proposer import PendingCommand, Proposer
from ..process.fair_slices import FairSlices
from .batches.subscriptions import Subscriptions
from .operations import QueueOperations
from .patterns.patterns import check_pattern
from .patterns.views import PatternViews
from .polls import PolledQueues
from .pulls.deliveries import Delivery, first_of, rendered
from .pulls.pulls import Pulls, Ticket, Waiter
from .pulls.unsent import Unsent
from .pulls.wait_lists import DeliverySink
from .pushes.copies import push_copies
from .pushes.jobs import Jobs
from .pushes.transactions import Step, run_transaction
from .pushes.waiting import WaitingPushes
from .sending import requests
from .sending.coalesced_result import CoalescedResult, shares
from .sending.command_sender import CommandSender
from .sending.due_times import DueTimes
from .sending.log_waiters import LogWaiters
from .sending.naming import no_queue
from .sending.push_items import PushItem, Stored, check_all_stored, refusal_of, stored
from .sending.rules import check_rules
from .sending.times import lease_us, retry_delay_us
from .sessions import Sessions
from .views.info import QueueInfo, Rates, info_of, no_rates
from .views.listing import QueueList, QueuePage, each_queue, list_queues
from .views.peek import Peeks
from .views.peek_ranges import PeekRanges
from .views.queue_events import QueueEvents
from .views.session_list import SessionList

__all__ = ["QueueService", "no_room"]

HasRoom = Callable[[int], bool]


class QueueService(CommandSender):
    """The service interface. Every asynchronous method raises `LmqError`.

    Args:
        pulls: takes pulls. The others are those of `CommandSender`.

    Attributes:
        subscriptions: batch leases.
        peeks: lists of the messages of a queue.
        peek_ranges: the parts in which to list them side by side.
        operations: purge, move, suspend and resume.
        jobs: pushes of writers that number what they write.
        polled: queues whose messages are named by id and tag.
        sessions: pulls, exclusive queues and locks that end with their client.
        board: who waits for something other than messages.
        events: who waits for something to happen to a queue.
        rates: what the node counts of queues.
    """

    def __init__(
        self,
        proposer: Proposer,
        pulls: Pulls,
        machine: Callable[[], Machine],
        views: PatternViews,
        turns: FairSlices,
        *,
        message_bytes_max: int,
        memory_bytes_max: int,
    ) -> None:
        super().__init__(
            proposer,
            machine,
            views,
            turns,
            due_times=DueTimes(machine, lambda: self.pulls.clock),
            message_bytes_max=message_bytes_max,
            memory_bytes_max=memory_bytes_max,
        )
        self.pulls = pulls
        self._hooked_rules: list[Rule] = []
        self._hooked_by_rules: frozenset[bytes] = frozenset()
        self._receipts: ReceiptFormat | None = None
        self.subscriptions = Subscriptions(self)
        self.peeks = Peeks(machine, turns)
        self.peek_ranges = PeekRanges(machine, turns)
        self.operations = QueueOperations(self)
        self.jobs = Jobs(self)
        self._flags = _FlagSink()
        self.board = LogWaiters(machine)
        self.events = QueueEvents(machine)
        self.board.session_ended.append(self._session_ended)
        self.polled = PolledQueues(self, self.receipts, lambda: self.pulls, self._wait_for)
        self.sessions = Sessions(self, self.board, self.receipts, self._pull_in_session)
        self.session_list = SessionList(machine, self.receipts)
        self.rates: Rates = no_rates
        self._waiting_pushes = WaitingPushes(self, self.board)

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
            self._waiting_pushes.reopen()
        else:
            self.pulls.close(error)
            self.board.close(error)
            self._waiting_pushes.close(error)
            self.proposer.retire(error)

    def _session_ended(self, session: int) -> None:
        # There are other pulls after the node has joined another cluster.
        self.pulls.session_ended(session)

    # --- push -----------------------------------------------------------------------------------------------------

    async def push(
        self,
        queue: bytes,
        items: Sequence[PushItem],
        owner: bytes = b"",
        *,
        wait_s: float | None = None,
        tells_sequence: bool = False,
    ) -> list[Stored]:
        """Store messages, all of them or none; returns what became of each, in order.

        A message that comes alone and without options shares a command with others, which does not tell its sequence, unless
        `tells_sequence` asks for that. With `wait_s` they wait so long for room in a full queue, in the order of arrival.

        Their keys belong to `owner`. Raises ``key_reused`` if a key came with another body before, ``full`` or ``too_large`` if a
        queue does not take them; nothing is stored then.
        """
        self.check_name(queue, owner)
        if len(items) > PUSH_COUNT_MAX:
            raise LmqError("too_large", f"a batch may have at most {PUSH_COUNT_MAX} messages, this has {len(items)}")
        has_options = False
        for item in items:
            self.check_item(item)
            has_options |= item.options is not None
        if wait_s:
            return await self.push_or_wait(queue, items, wait_s, owner)
        as_rows = has_options or len(items) > 1 or tells_sequence
        if not as_rows and len(items) == 1 and not items[0].headers and items[0].key is None:
            return [Stored(await self._push_plain(queue, items[0]))]
        if as_rows:
            return [
                stored(*one)
                for one in await self.ask(requests.push_rows(self.due_times, queue, items, self.owned(owner)))
            ]
        flags: list[int] = await self.ask(requests.push_items(queue, items, self.owned(owner)))
        check_all_stored(queue, flags)
        return [Stored(flag) for flag in flags]

    def push_or_wait(
        self, queue: bytes, items: Sequence[PushItem], wait_s: float, owner: bytes = b""
    ) -> Coroutine[Any, Any, list[Stored]]:
        """As `push` with `wait_s`. It is sent at once, so that what is sent next takes effect behind it."""
        self.check_name(queue, owner)
        for item in items:
            self.check_item(item)
        return self._waiting_pushes.push(queue, items, wait_s, owner)

    def push_soon(self, queue: bytes, content: bytes, owner: bytes = b"") -> asyncio.Future[int]:
        """Send a push of a bare message now; what is returned tells its flag, or raises as `push`.

        Raises: as `push`, if it cannot be sent.
        """
        self.check_name(queue, owner)
        self.check_push(len(content))
        return self._push_plain(queue, PushItem(content))

    def push_run(self, queue: bytes, contents: list[bytes], owner: bytes = b"") -> asyncio.Future[list[int]]:
        """Send pushes of bare messages now, one behind the other; what is returned tells the flag of each, or raises.

        A queue may refuse some of them, which the flags say.

        Raises: as `push`, if they cannot be sent.
        """
        self.check_name(queue, owner)
        self.check_push(max(map(len, contents)))
        outcome: asyncio.Future[list[int]] = self._loop.create_future()
        share = CoalescedResult(outcome, len(contents))
        size, tail = sum(map(len, contents)) + 8 * len(contents), self.proposer.tail
        if tail is not None and tail.sink is shares and tail.command[QUEUE] == queue and tail.command[OP] == Op.PUSH:
            tail.command[CONTENTS].extend(contents)
            tail.tickets.extend([share] * len(contents))
            self.proposer.grew(tail, size)
        else:
            command = layout.push(queue, None, contents, None, 0)
            self.proposer.add(PendingCommand(command, [share] * len(contents), shares), size + 64)
        return outcome

    def _push_plain(self, queue: bytes, item: PushItem) -> asyncio.Future[int]:
        future: asyncio.Future[int] = self._loop.create_future()
        size = len(item.content) + len(item.content_type or b"") + 8
        tail = self.proposer.tail
        if (
            tail is not None
            and tail.sink is self._flags
            and tail.command[QUEUE] == queue
            and tail.command[TYPE] == item.content_type
        ):
            tail.command[CONTENTS].append(item.content)
            tail.tickets.append(future)
            self.proposer.grew(tail, size)
        else:
            command = layout.push(queue, item.content_type, [item.content], None, 0)
            self.proposer.add(PendingCommand(command, [future], self._flags), size + 64)
        return future

    async def push_all(self, pattern: bytes, item: PushItem, client: bytes) -> list[tuple[bytes, int]]:
        """Store a copy in every existing queue whose name the pattern finds; returns (queue, flag) sorted by queue.

        See `copies`.
        """
        return await push_copies(self, pattern, item.row(), client)

    # --- pull -----------------------------------------------------------------------------------------------------

    async def pull(
        self,
        queue: bytes,
        *,
        count: int = 1,
        wait_s: float | None = 0.0,
        has_room: HasRoom | None = None,
        owner: bytes = b"",
        lease_s: float | None = None,
        settles: bool = False,
        place: ConnectionSlot | None = None,
    ) -> list[Delivery]:
        """Lease up to `count` messages, waiting up to `wait_s` seconds (None: for ever) for the first.

        The lease ends after `lease_s` seconds, or after the queue's timeout. With `settles` the messages are acknowledged before
        they are handed out: should the client never get them, they are lost.

        Of several no more are taken than have 16 MiB together. `has_room` is asked whether the client can take so many bytes;
        what it cannot take is put back, uncharged, and the error is ``overloaded``.

        Cancelling the task forgets the wait; a message already taken for it is put back, uncharged. `place` is the connection
        that holds the messages from then on.
        """
        self.check_name(queue, owner)
        if not 0 < count <= PULL_COUNT_MAX:
            raise LmqError("bad_request", f"a pull takes 1 to {PULL_COUNT_MAX} messages, not {count}")
        start: Callable[[bytes, Ticket], None] = self.pulls.start
        if lease_s is not None:
            start = partial(self.pulls.start_with_lease, lease_us(lease_s))
        delivered = await self._wait_for(start, queue, (count, wait_s), has_room, None if settles else place)
        return await self._settled(queue, delivered) if settles and delivered else delivered

    async def _pull_in_session(
        self,
        queue: bytes,
        asked: Asked,
        wanted: tuple[int, float | None],
        has_room: HasRoom | None,
        place: ConnectionSlot | None,
        *,
        unsent: Unsent,
    ) -> list[Delivery]:
        """As `pull`, for `Sessions.pull`: asking for this, for so many messages and so long."""
        start = partial(self.pulls.start_asking, asked)
        return await self._wait_for(start, queue, wanted, has_room, place, unsent=unsent)

    async def _settled(self, queue: bytes, delivered: list[Delivery]) -> list[Delivery]:
        """Acknowledge deliveries that are to be handed out; returns those whose leases have not ended meanwhile."""
        try:
            done = await self.ack(queue, [one.id for one in delivered])
        except LmqError as exc:
            if exc.outcome is Outcome.NOT_APPLIED:
                self.give_back(delivered)
            raise
        return [one for one, is_settled in zip(delivered, done, strict=True) if is_settled]

    async def pull_any(
        self,
        pattern: bytes,
        client: bytes,
        *,
        wait_s: float | None = 0.0,
        has_room: HasRoom | None = None,
        place: ConnectionSlot | None = None,
    ) -> Delivery | None:
        """Lease one message from any queue whose name the pattern finds, the one that is due first. See `pull`."""

        def start(pattern: bytes, ticket: Ticket) -> None:
            self.pulls.start_any(pattern, ticket, client)

        found = await self._wait_for(start, pattern, (1, wait_s), has_room, place)
        return found[0] if found else None

    async def _wait_for(
        self,
        start: Callable[[bytes, Ticket], None],
        key: bytes,
        wanted: tuple[int, float | None],
        has_room: HasRoom | None,
        place: ConnectionSlot | None = None,
        *,
        unsent: Unsent = Unsent.PUT_BACK,
    ) -> list[Delivery]:
        receipts = self.receipts()
        delivered = await self.delivered(start, key, wanted, has_room, place, unsent=unsent)
        return rendered(receipts, delivered, self.unix_us)

    async def delivered(
        self,
        start: Callable[[bytes, Ticket], None],
        key: bytes,
        wanted: tuple[int, float | None],
        has_room: HasRoom | None,
        place: ConnectionSlot | None = None,
        *,
        unsent: Unsent = Unsent.PUT_BACK,
        until: asyncio.Future[None] | None = None,
    ) -> list[Delivered]:
        """What a pull of so many messages, waiting so long, brings, as the core names it; see `pull`.

        With `until` a wait is over, too, when that is done.
        """
        pulls = self.pulls
        puller = _Pull(self._loop.create_future(), place)
        start(key, (puller, None, *wanted))
        if until is not None:
            until.add_done_callback(lambda one: None if one.cancelled() else _cancel(pulls, puller))
        try:
            delivered = await puller.future
        except asyncio.CancelledError:
            puller.closed = True
            pulls.abandon(puller)
            if puller.future.done() and not puller.future.cancelled() and puller.future.exception() is None:
                pulls.put_back(puller.future.result(), unsent)
            raise
        taken, size_bytes = first_of(delivered)
        if has_room is not None and delivered and not has_room(size_bytes):
            pulls.put_back(delivered, unsent)
            raise no_room()
        if taken < len(delivered):
            pulls.put_back(delivered[taken:], unsent)
            return delivered[:taken]
        return delivered

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

    async def nack(
        self, queue: bytes, ids: Sequence[bytes], place: Place = Place.TAIL, delay_s: float | None = None
    ) -> list[bool]:
        """Give messages back; the delivery stays charged. Raises ``queue_not_found``.

        They go to a place in line, or become due after a delay; None for what the queue says.
        """
        if place is Place.TAIL and delay_s is None:
            return await self._settle(Op.NACK, queue, ids)
        return await self._settle(Op.GIVE_BACK, queue, ids, int(place), retry_delay_us(delay_s))

    async def extend(self, queue: bytes, ids: Sequence[bytes], lease_s: float | None = None) -> list[bool]:
        """Let leases end so much later than now, or a full timeout. Raises ``queue_not_found``."""
        if lease_s is None:
            return await self._settle(Op.EXTEND, queue, ids)
        return await self._settle(Op.EXTEND_BY, queue, ids, lease_us(lease_s))

    async def _settle(self, op: Op, queue: bytes, ids: Sequence[bytes], *more: int) -> list[bool]:
        receipts = self.receipts()
        if len(queue) > NAME_BYTES_MAX:
            raise no_queue(queue)
        numbers = [receipts.parse(one) for one in ids]
        results: list[bool] | None = await self.ask(requests.settle(op, queue, numbers, *more))
        if results is None:
            raise no_queue(queue)
        return results

    def transaction(
        self, steps: Sequence[Step], owner: bytes = b"", *, again: bool = False
    ) -> Coroutine[Any, Any, list[Stored | bool]]:
        """Carry out several operations on any queues, or none of them; see `run_transaction`."""
        return run_transaction(self, self.receipts(), steps, owner, again=again)

    # --- properties and the rest ----------------------------------------------------------------------------------

    async def set_properties(self, queue: bytes, properties: Properties, owner: bytes = b"") -> None:
        """Set some of a queue's own properties, keep the others; creates the queue."""
        self.check_name(queue, owner)
        self.check_room()
        await self.ask(requests.set_properties(queue, properties))

    async def clear_properties(self, queue: bytes, owner: bytes = b"") -> None:
        """Forget a queue's own properties; creates the queue."""
        self.check_name(queue, owner)
        await self.ask(requests.clear_properties(queue))

    async def delete(self, queue: bytes) -> bool:
        """Delete a queue with its messages and properties; False if it does not exist. Waiting pulls stay."""
        return len(queue) <= NAME_BYTES_MAX and bool(await self.ask(requests.delete(queue)))

    def set_defaults(self, rules: Rules) -> Coroutine[Any, Any, None]:
        """Replace the default rules; await what this returns until all queues have taken them over.

        Raises:
            LmqError: at once: ``bad_pattern``, and ``bad_property`` if they are too many.
        """
        check_rules(rules)
        return self._spread(self.send(*requests.set_defaults(rules)))

    async def _spread(self, begun: asyncio.Future[Any]) -> None:
        await begun
        while self.machine().defaults.is_spreading():
            await self.barrier()

    # --- local reads ----------------------------------------------------------------------------------------------

    def unix_us(self, log_us: int) -> int:
        """Return the Unix time of a log time, both in microseconds; the same at every node once a leader has told it."""
        found = self.machine().times.unix_us(log_us)
        return log_us + time.time_ns() // 1000 - self.pulls.clock.now_us() if found is None else found

    def properties(self, queue: bytes) -> dict[str, Any]:
        """Effective properties, keys in alphabetical order: accum (ms), hooks if set, retry, timeout (s)."""
        return self.machine().properties(queue)

    def defaults(self) -> Rules:
        """The default rules as they were set."""
        return [
            (rule.pattern.decode(), [(name, value) for name, value in rule.properties])
            for rule in self.machine().defaults.rules
        ]

    def each_queue(self, client: bytes) -> AsyncIterator[Queue]:
        """All queues by name, in slices of the event loop for this client; see `names_in_order`."""
        return each_queue(self.machine, self.turns, client)

    async def list_queues(self, wanted: QueueList, client: bytes) -> QueuePage:
        """A page of the list of queues, see `list_queues`."""
        return await list_queues(self.machine, wanted, self.turns, client, self.rates)

    def own_properties(self, queue: bytes) -> dict[str, Any]:
        """Properties set on the queue itself, keys in alphabetical order; see `properties`."""
        found = self.machine().queues.get(queue)
        return {} if found is None else dict(sorted(found.own.items()))

    def queue(self, name: bytes) -> QueueInfo | None:
        """Statistics of a queue, None if it does not exist."""
        machine = self.machine()
        queue = machine.queues.get(name)
        return None if queue is None else info_of(queue, machine.now_us, self.rates)

    def preserved_headers(self) -> tuple[HookedNames, frozenset[bytes]]:
        """Lower-case names of request headers that the hooks of any queue, and those of any rule, ask to keep."""
        machine = self.machine()
        rules = machine.defaults.rules
        if rules is not self._hooked_rules:
            self._hooked_rules, self._hooked_by_rules = rules, _hooked_by(rules)
        return machine.hooked, self._hooked_by_rules

    def check_pattern(self, pattern: bytes) -> None:
        """Refuse a regular expression that cannot be used. Raises ``bad_pattern``."""
        check_pattern(pattern)


def _hooked_by(rules: Iterable[Rule]) -> frozenset[bytes]:
    hooks = [dict(rule.properties).get("hooks", ()) for rule in rules]
    wanted = (settings_of({**SYSTEM_DEFAULTS, "hooks": one}).preserved for one in hooks)
    return frozenset(name for names in wanted for name in names)


class _FlagSink:
    """Groups of plain pushes, a future for each flag."""

    def completed(self, group: PendingCommand, flags: list[int]) -> None:
        for future, flag in zip(group.tickets, flags, strict=True):
            if future.done():
                continue
            if flag < PushFlag.FULL:
                future.set_result(flag)
            else:
                future.set_exception(refusal_of(group.command[QUEUE], flag))

    def failed(self, group: PendingCommand, error: LmqError) -> None:
        for future in group.tickets:
            if not future.done():
                future.set_exception(error.again())


def no_room() -> LmqError:
    """Why a message was put back that the client cannot take."""
    return LmqError("overloaded", "the client leaves too much unread for another message; read it, then try again")


def _cancel(pulls: Pulls, puller: DeliverySink) -> None:
    pulls.cancel(puller, None)


class _Pull:
    """A coroutine that waits for messages (`DeliverySink`)."""

    __slots__ = ("closed", "future", "place", "waiting")

    def __init__(self, future: asyncio.Future[list[Delivered]], place: ConnectionSlot | None) -> None:
        self.future = future
        self.place = place
        self.closed = False
        self.waiting: set[Waiter] = set()

    def may_wait(self) -> bool:
        return True

    def pulled(self, _token: Any, delivered: list[Delivered]) -> None:
        if not self.future.done():
            self.future.set_result(delivered)

    def pull_failed(self, _token: Any, error: LmqError) -> None:
        if not self.future.done():
            self.future.set_exception(error.again())
