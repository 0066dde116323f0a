"""Operations on queues for protocols: asynchronous, validated, independent of any protocol."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from functools import partial
from typing import Any

from ...core import Queue, State
from ...core.log.commands import Ack, Extend, Nack, Place, Pull, Push
from ...core.log.results import Delivered
from ...core.queue.properties import SYSTEM_DEFAULTS, Rule, settings_of
from ...core.state.hooked_names import HookedNames
from ...ports import ConnectionSlot
from ...wire.attributes import ATTRIBUTE_BYTES_MAX
from ...wire.errors import LmqError, Outcome
from ...wire.ids import ReceiptFormat
from ...wire.limits import NAME_BYTES_MAX, PULL_COUNT_MAX, PUSH_COUNT_MAX
from ...wire.properties import AnnotationChanges, Properties, Rules
from ..commit.proposer import PendingCommand, Proposer
from ..process.fair_slices import FairSlices
from .batches.subscriptions import Subscriptions
from .move_tasks import MoveTasks
from .operations import QueueOperations
from .patterns.patterns import check_pattern
from .patterns.views import PatternViews
from .polls import PolledQueues
from .pulls.awaited_pull import AwaitedPull
from .pulls.deliveries import Delivery, first_of, rendered
from .pulls.pull_options import PullOptions
from .pulls.pulls import PullRequest, Pulls
from .pulls.unsent import Unsent
from .pulls.wait_lists import DeliverySink
from .pushes.attempts import AttemptedPushes
from .pushes.copies import push_copies
from .pushes.jobs import Jobs
from .pushes.repeated import RepeatedAnswers
from .pushes.transactions import Step, run_transaction
from .pushes.waiting import WaitingPushes
from .schedules.schedules import Schedules
from .sending import requests
from .sending.coalesced_result import CoalescedResult, shares
from .sending.command_sender import CommandSender
from .sending.due_times import DueTimes
from .sending.flag_sink import FlagSink
from .sending.log_waiters import LogWaiters
from .sending.naming import no_queue
from .sending.push_items import PushItem, Stored, stored
from .sending.rules import check_rules
from .sending.times import lease_us, retry_delay_us
from .sessions import Sessions
from .views.info import QueueDescription, QueueInfo, Rates, description_of, info_of, no_rates
from .views.listing import QueueList, QueuePage, each_queue, list_queues
from .views.peek import Peeks
from .views.peek_ranges import PeekRanges
from .views.queue_events import QueueEvents
from .views.session_list import SessionList

__all__ = ["QueueService", "no_room"]

HasRoom = Callable[[int], bool]


class QueueService:
    """The interface of the service. Every asynchronous method raises `LmqError`.

    Args:
        pulls: takes pulls. The other arguments are those of `CommandSender`.

    Attributes:
        sender: checks and sends the commands.
        subscriptions: batch leases.
        peeks: lists of the messages of a queue.
        peek_ranges: the parts of a queue that clients can list in parallel.
        operations: purge, move, suspend and resume.
        jobs: pushes of writers that number what they write.
        polled: queues whose messages are named by id and tag.
        schedules: messages that the cluster pushes at given times.
        move_tasks: tasks that move the messages of a queue at a rate.
        sessions: pulls, exclusive queues and locks that end with their client.
        board: requests that wait for something other than messages.
        events: subscribers to events of queues.
        rates: the rates of queues that the node measures.
        repeated_answers: sink of the pushes that clients of front ends repeat.
        attempts: pushes that clients repeat under attempts.
    """

    def __init__(
        self,
        proposer: Proposer,
        pulls: Pulls,
        state: Callable[[], State],
        views: PatternViews,
        turns: FairSlices,
        *,
        message_bytes_max: int,
        attribute_bytes_max: int = ATTRIBUTE_BYTES_MAX,
        memory_bytes_max: int,
    ) -> None:
        self.sender = CommandSender(
            proposer,
            state,
            views,
            turns,
            due_times=DueTimes(state, lambda: self.pulls.clock),
            message_bytes_max=message_bytes_max,
            attribute_bytes_max=attribute_bytes_max,
            memory_bytes_max=memory_bytes_max,
        )
        self._loop = asyncio.get_running_loop()
        self.pulls = pulls
        self._hooked_rules: list[Rule] = []
        self._hooked_by_rules: frozenset[bytes] = frozenset()
        self._receipts: ReceiptFormat | None = None
        self.subscriptions = Subscriptions(self.sender)
        self.peeks = Peeks(state, turns)
        self.peek_ranges = PeekRanges(state, turns)
        self.operations = QueueOperations(self.sender)
        self.jobs = Jobs(self.sender)
        self.schedules = Schedules(self.sender)
        self.move_tasks = MoveTasks(self.sender, self.unix_us)
        self._flags = FlagSink()
        self.repeated_answers = RepeatedAnswers()
        self.board = LogWaiters(state)
        self.events = QueueEvents(state)
        self.board.session_ended.append(self._session_ended)
        self.polled = PolledQueues(self.sender, lambda: self.pulls, self._wait_for)
        self.sessions = Sessions(self.sender, self.board, self.receipts, self._pull_in_session)
        self.session_list = SessionList(state, self.receipts)
        self.rates: Rates = no_rates
        self._waiting_pushes = WaitingPushes(self.sender, self.board)
        self.attempts = AttemptedPushes(self.sender)

    def receipts(self) -> ReceiptFormat:
        """Return the format of message ids in this cluster life.

        Raises:
            LmqError: ``no_leader`` if the cluster has not been founded yet.
        """
        if self._receipts is None:
            raise LmqError("no_leader", "the cluster has not elected its first leader yet")
        return self._receipts

    def founded(self, salt: bytes) -> None:
        """Set the salt of message ids of the present cluster life; empty if it is not known yet."""
        self._receipts = ReceiptFormat(salt) if salt else None

    def refuse(self, error: LmqError | None) -> None:
        """Refuse clients with `error`, waiting pulls included; None serves them again.

        Requests that the node has already taken still get their outcome.
        """
        if error is None:
            self.sender.proposer.resume()
            self.pulls.reopen()
            self._waiting_pushes.reopen()
        else:
            self.pulls.close(error)
            self.board.close(error)
            self._waiting_pushes.close(error)
            self.sender.proposer.retire(error)

    def _session_ended(self, session: int) -> None:
        # Looked up at each call: `pulls` is replaced when the node joins another cluster.
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
        must_exist: bool = False,
    ) -> list[Stored]:
        """Store all messages or none; return the result of each, in order.

        A single message without options shares a command with others. Such a command returns no sequence, so
        `tells_sequence` sends the message in a command that does. With `wait_s` the push waits up to that many seconds
        for room in a full queue, in order of arrival.

        Idempotency keys belong to `owner`. The push stores nothing and raises ``key_reused`` if a key was used with
        another body before, ``full`` or ``too_large`` if a queue refuses the messages.

        With `must_exist` the queue is not created, and pushes to it may be suspended.
        """
        if not must_exist:
            self.sender.check_name(queue, owner)
        if len(items) > PUSH_COUNT_MAX:
            raise LmqError("too_large", f"a batch may have at most {PUSH_COUNT_MAX} messages, this has {len(items)}")
        has_options = False
        for item in items:
            self.sender.check_item(item)
            has_options |= item.options is not None
        if wait_s:
            return await self.push_or_wait(queue, items, wait_s, owner)
        is_single = len(items) == 1 and not (has_options or tells_sequence or must_exist)
        if is_single and items[0].is_plain():
            return [Stored(await self._send_plain(queue, items[0]))]
        due_times = self.sender.due_times
        request = requests.push_rows(due_times, queue, items, owner, must_exist=must_exist)
        return [stored(*one) for one in await self.sender.ask(request)]

    def push_or_wait(
        self, queue: bytes, items: Sequence[PushItem], wait_s: float, owner: bytes = b""
    ) -> Coroutine[Any, Any, list[Stored]]:
        """Store messages, waiting up to `wait_s` seconds for room; see `push`.

        The command is sent at once, so requests that are sent later take effect after it.
        """
        self.sender.check_name(queue, owner)
        for item in items:
            self.sender.check_item(item)
        return self._waiting_pushes.push(queue, items, wait_s, owner)

    def push_run(self, queue: bytes, contents: list[bytes], owner: bytes = b"") -> asyncio.Future[list[int]]:
        """Send pushes of bare messages now, in order; return a future of their flags, which raises like `push`.

        A queue may refuse some of the messages; their flags show it.

        Raises: like `push`, if the messages cannot be sent.
        """
        self.sender.check_name(queue, owner)
        self.sender.check_push(max(map(len, contents)))
        outcome: asyncio.Future[list[int]] = self._loop.create_future()
        share = CoalescedResult(outcome, len(contents))
        requests, size = [share] * len(contents), sum(map(len, contents)) + 8 * len(contents)
        proposer = self.sender.proposer
        command = proposer.open_command(shares, Push, queue, proposer.last_number)
        if command is not None:
            command.contents.extend(contents)
            proposer.share(size, *requests)
        else:
            proposer.add(PendingCommand(Push(queue, None, contents), requests, shares), size + 64)
        return outcome

    def _send_plain(self, queue: bytes, item: PushItem) -> asyncio.Future[int]:
        future: asyncio.Future[int] = self._loop.create_future()
        size = len(item.content) + len(item.content_type or b"") + 8
        # A client of HTTP awaits each answer, and the pushes of Kestrel's clients keep their order within a queue, which has
        # one open command. So the push may join it whatever was added later.
        command = self.sender.proposer.open_command(self._flags, Push, queue, 0)
        if command is not None and command.content_type == item.content_type:
            command.contents.append(item.content)
            self.sender.proposer.share(size, future)
        else:
            command = Push(queue, item.content_type, [item.content])
            self.sender.proposer.add(PendingCommand(command, [future], self._flags), size + 64)
        return future

    async def push_all(self, pattern: bytes, item: PushItem, client: bytes) -> list[tuple[bytes, int]]:
        """Store a copy in every existing queue whose name matches the pattern; return (queue, flag) sorted by queue.

        See `push_copies`.
        """
        return await push_copies(self.sender, pattern, item.copied_row(), client)

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
        """Lease up to `count` messages; wait up to `wait_s` seconds (None: without end) for the first.

        The lease ends after `lease_s` seconds, by default after the queue's timeout. With `settles` the node
        acknowledges the messages before it hands them out: if the client never receives them, they are lost.

        A pull of several messages takes at most 16 MiB. `has_room` returns whether the client can take that many bytes.
        If not, the messages are put back uncharged and the pull raises ``overloaded``.

        Cancelling the task ends the wait; messages already taken for it are put back uncharged. `place` is the
        connection that holds the messages from then on.
        """
        self.sender.check_name(queue, owner)
        if not 0 < count <= PULL_COUNT_MAX:
            raise LmqError("bad_request", f"a pull takes 1 to {PULL_COUNT_MAX} messages, not {count}")
        start: Callable[[bytes, PullRequest], object] = self.pulls.start
        if lease_s is not None:
            start = partial(self.pulls.start, options=PullOptions(Pull, (lease_us(lease_s), False)))
        delivered = await self._wait_for(start, queue, (count, wait_s), has_room, None if settles else place)
        return await self._settled(queue, delivered) if settles and delivered else delivered

    async def _pull_in_session(
        self,
        queue: bytes,
        options: PullOptions,
        wanted: tuple[int, float | None],
        has_room: HasRoom | None,
        place: ConnectionSlot | None,
        *,
        unsent: Unsent,
    ) -> list[Delivery]:
        """Pull for `Sessions.pull`; `wanted` is the number of messages and the wait in seconds."""
        start = partial(self.pulls.start, options=options)
        return await self._wait_for(start, queue, wanted, has_room, place, unsent=unsent)

    async def _settled(self, queue: bytes, delivered: list[Delivery]) -> list[Delivery]:
        """Acknowledge deliveries before they are handed out; return those whose leases had not ended."""
        try:
            done = await self.ack(queue, [one.id for one in delivered])
        except LmqError as exc:
            if exc.outcome is Outcome.NOT_APPLIED:
                self.put_back(delivered)
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
        """Lease one message, the one due first, from any queue whose name matches the pattern. See `pull`."""

        def start(pattern: bytes, request: PullRequest) -> None:
            self.pulls.start_any(pattern, request, client)

        found = await self._wait_for(start, pattern, (1, wait_s), has_room, place)
        return found[0] if found else None

    async def _wait_for(
        self,
        start: Callable[[bytes, PullRequest], object],
        key: bytes,
        wanted: tuple[int, float | None],
        has_room: HasRoom | None,
        place: ConnectionSlot | None = None,
        *,
        unsent: Unsent = Unsent.UNDO,
        until: asyncio.Future[None] | None = None,
    ) -> list[Delivery]:
        receipts = self.receipts()
        delivered = await self.delivered(start, key, wanted, has_room, place, unsent=unsent, until=until)
        return rendered(receipts, delivered, self.unix_us)

    async def delivered(
        self,
        start: Callable[[bytes, PullRequest], object],
        key: bytes,
        wanted: tuple[int, float | None],
        has_room: HasRoom | None,
        place: ConnectionSlot | None = None,
        *,
        unsent: Unsent = Unsent.UNDO,
        until: asyncio.Future[None] | None = None,
    ) -> list[Delivered]:
        """Return the deliveries of a pull in the core's form; `wanted` is their number and the wait in seconds.

        The wait also ends when `until` is done. See `pull`.
        """
        pulls = self.pulls
        puller = AwaitedPull(self._loop.create_future(), place)
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

    def put_back(self, deliveries: Sequence[Delivery]) -> None:
        """Return deliveries that did not reach their client: uncharged and in their old places.

        The call does not wait for the outcome.
        """
        parse = self.receipts().parse
        by_queue: dict[bytes, list[int]] = {}
        for one in deliveries:
            by_queue.setdefault(one.queue, []).append(parse(one.id))
        self.pulls.put_back_numbers(by_queue)

    # --- settle ---------------------------------------------------------------------------------------------------

    async def ack(self, queue: bytes, ids: Sequence[bytes]) -> list[bool]:
        """Acknowledge deliveries, which removes the messages. Raises ``queue_not_found``."""
        return await self._settle(Ack(queue, self._numbers(ids)))

    async def nack(
        self,
        queue: bytes,
        ids: Sequence[bytes],
        place: Place = Place.TAIL,
        delay_s: float | None = None,
        reason: bytes = b"",
    ) -> list[bool]:
        """Give messages back; the delivery stays charged. Raises ``queue_not_found``.

        They go to a place in line, or become due after a delay; None takes the delay from the queue's properties. A reason
        becomes an attribute of them.
        """
        nack = self.sender.nack(queue, self._numbers(ids), place, retry_delay_us(delay_s), reason)
        return await self._settle(nack)

    async def extend(self, queue: bytes, ids: Sequence[bytes], lease_s: float | None = None) -> list[bool]:
        """Make leases end `lease_s` seconds from now, by default after a full timeout. Raises ``queue_not_found``."""
        return await self._settle(Extend(queue, self._numbers(ids), 0 if lease_s is None else lease_us(lease_s)))

    def _numbers(self, ids: Sequence[bytes]) -> list[int]:
        return list(map(self.receipts().parse, ids))

    async def _settle(self, command: Ack | Nack | Extend) -> list[bool]:
        if len(command.queue) > NAME_BYTES_MAX:
            raise no_queue(command.queue)
        results: list[bool] | None = await self.sender.ask(requests.settle(command))
        if results is None:
            raise no_queue(command.queue)
        return results

    def transaction(
        self, steps: Sequence[Step], owner: bytes = b"", *, again: bool = False
    ) -> Coroutine[Any, Any, list[Stored | bool]]:
        """Carry out all of several operations on any queues, or none of them; see `run_transaction`."""
        return run_transaction(self.sender, self.receipts(), steps, owner, again=again)

    # --- properties and the rest ----------------------------------------------------------------------------------

    async def create(
        self,
        queue: bytes,
        properties: Properties,
        annotations: AnnotationChanges,
        owner: bytes = b"",
        *,
        indexed: bool = False,
    ) -> bool:
        """Create a queue with its own properties and annotations; False, with nothing changed, if it exists.

        With `indexed` its messages are found by id, see `PolledQueues`. Raises ``too_large`` for the annotations.
        """
        self.sender.check_name(queue)
        self.sender.check_room()
        return bool(await self.sender.ask(requests.create(queue, properties, annotations, owner, indexed=indexed)))

    async def set_properties(
        self,
        queue: bytes,
        properties: Properties,
        owner: bytes = b"",
        *,
        annotations: AnnotationChanges | None = None,
        must_exist: bool = False,
    ) -> None:
        """Set some of a queue's own properties and annotations, all or nothing; the others are kept.

        Creates the queue, unless it `must_exist`. Raises ``queue_not_found``, and ``too_large`` for the annotations.
        """
        self.sender.check_name(queue, owner)
        self.sender.check_room()
        await self.sender.ask(requests.set_properties(queue, properties, annotations or {}, must_exist=must_exist))

    async def clear_properties(self, queue: bytes, owner: bytes = b"") -> None:
        """Remove a queue's own properties; creates the queue."""
        self.sender.check_name(queue, owner)
        await self.sender.ask(requests.clear_properties(queue))

    async def delete(self, queue: bytes) -> bool:
        """Delete a queue with its messages and properties; False if it does not exist. Waiting pulls keep waiting."""
        return len(queue) <= NAME_BYTES_MAX and bool(await self.sender.ask(requests.delete(queue)))

    def set_defaults(self, rules: Rules) -> Coroutine[Any, Any, None]:
        """Replace the default rules; the returned coroutine ends when all queues have them.

        Raises:
            LmqError: at once: ``bad_pattern``; ``bad_property`` if there are too many rules.
        """
        check_rules(rules)
        return self._spread(self.sender.send(*requests.set_defaults(rules)))

    async def _spread(self, begun: asyncio.Future[Any]) -> None:
        await begun
        while self.sender.state().defaults.is_spreading():
            await self.sender.barrier()

    # --- local reads ----------------------------------------------------------------------------------------------

    def unix_us(self, log_us: int) -> int:
        """Return the Unix time of a log time, both in microseconds.

        It is the same at every node once a leader has published the difference between the clocks.
        """
        found = self.sender.state().times.unix_us(log_us)
        return log_us + time.time_ns() // 1000 - self.pulls.clock.now_us() if found is None else found

    def properties(self, queue: bytes) -> dict[str, Any]:
        """Return the effective properties, keys in alphabetical order: accum (ms), hooks if set, retry, timeout (s)."""
        return self.sender.state().properties(queue)

    def defaults(self) -> Rules:
        """Return the default rules as they were set."""
        return [
            (rule.pattern.decode(), [(name, value) for name, value in rule.properties])
            for rule in self.sender.state().defaults.rules
        ]

    def each_queue(self, client: bytes) -> AsyncIterator[Queue]:
        """Iterate over all queues by name, in this client's slices of the event loop; see `names_in_order`."""
        return each_queue(self.sender.state, self.sender.turns, client)

    async def list_queues(self, wanted: QueueList, client: bytes) -> QueuePage:
        """Return a page of the list of queues, see `list_queues`."""
        return await list_queues(self.sender.state, wanted, self.sender.turns, client, self.rates)

    def own_properties(self, queue: bytes) -> dict[str, Any]:
        """Return the properties set on the queue itself, keys in alphabetical order; see `properties`."""
        found = self.sender.state().queues.get(queue)
        return {} if found is None else dict(sorted(found.own.items()))

    async def described(self, queue: bytes) -> QueueDescription:
        """Return what the cluster keeps with a queue, as of now. Raises ``queue_not_found``."""
        await self.sender.look_up()
        found = self.description(queue)
        if found is None:
            raise no_queue(queue)
        return found

    def description(self, queue: bytes) -> QueueDescription | None:
        """Return what the local replica keeps with a queue, None if it does not exist."""
        found = self.sender.state().queues.get(queue)
        return None if found is None else description_of(found, self.unix_us)

    def queue(self, name: bytes) -> QueueInfo | None:
        """Return statistics of a queue, None if it does not exist."""
        state = self.sender.state()
        queue = state.queues.get(name)
        return None if queue is None else info_of(queue, state.now_us, self.rates)

    def preserved_headers(self) -> tuple[HookedNames, frozenset[bytes]]:
        """Return the lower-case names of headers that are attributes: those of hooks of queues, and of hooks of rules."""
        state = self.sender.state()
        rules = state.defaults.rules
        if rules is not self._hooked_rules:
            self._hooked_rules, self._hooked_by_rules = rules, _hooked_by(rules)
        return state.hooked, self._hooked_by_rules

    def check_pattern(self, pattern: bytes) -> None:
        """Refuse an unusable regular expression. Raises ``bad_pattern``."""
        check_pattern(pattern)


def _hooked_by(rules: Iterable[Rule]) -> frozenset[bytes]:
    hooks = [dict(rule.properties).get("hooks", ()) for rule in rules]
    wanted = (settings_of({**SYSTEM_DEFAULTS, "hooks": one}).preserved for one in hooks)
    return frozenset(name for names in wanted for name in names)


def no_room() -> LmqError:
    """Return the error for a client that cannot take the message, which was put back."""
    return LmqError("overloaded", "the client leaves too much unread for another message; read it, then try again")


def _cancel(pulls: Pulls, puller: DeliverySink) -> None:
    pulls.cancel(puller, None)
