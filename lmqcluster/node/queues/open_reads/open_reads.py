"""Messages held by connections.

They are leases of the node's session. If the connection or the node is gone, they return to the head of their queue.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from ....core import Queue
from ....core.log.commands import Nack, Place, Pull, PullInSession
from ....core.log.results import Delivered
from ....core.sessions.sessions import LEASES_MAX
from ....wire.errors import LmqError, Outcome
from ...commit.proposer import PendingCommand
from ..node_session import OWNER, NodeSession
from ..pulls.deliveries import Delivery, rendered
from ..pulls.pull_options import PullOptions
from ..pulls.unsent import Unsent, unsent_in_session
from ..sending.command_sender import ignore_result
from ..sending.times import lease_us
from ..service import QueueService
from .read_batcher import ReadBatcher

__all__ = ["HasRoom", "OpenReads"]

HasRoom = Callable[[int], bool]

_NUMBERS_MAX = 1_000


class OpenReads:
    """The open reads of protocols in which a message belongs to a connection until the connection confirms it.

    Opening and aborting a message uses up none of its deliveries, unless its queue has a dead-letter queue. A message
    stays open as long as its connection.

    Args:
        service: the queues.
        session: the session of the node.
    """

    def __init__(self, service: QueueService, session: NodeSession) -> None:
        self._service = service
        self._session = session
        self._loop = asyncio.get_running_loop()
        self._turns = ReadBatcher(service.sender.proposer, lambda: service.pulls)

    def on_lost(self, listener: Callable[[], None]) -> None:
        """Call `listener` when other clients have got the messages that this node's connections held.

        The listener has to close these connections.
        """
        self._session.on_lost.append(listener)

    async def open(
        self,
        queue: bytes,
        *,
        count: int = 1,
        wait_s: float | None = 0.0,
        lease_s: float | None = None,
        has_room: HasRoom | None = None,
    ) -> list[Delivery]:
        """Take up to `count` messages from the queue; wait up to `wait_s` seconds (None: without end) for the first.

        They stay open until they are confirmed or aborted, or `lease_s` seconds have passed.

        Raises:
            LmqError: like `QueueService.pull`; ``exclusive`` for an exclusive queue, because all connections of a node
                would share its turn.
        """
        found = await self.take(queue, count=count, wait_s=wait_s, lease_s=lease_s, has_room=has_room)
        return rendered(self._service.receipts(), found, self._service.unix_us)

    async def take(
        self,
        queue: bytes,
        *,
        count: int = 1,
        wait_s: float | None = 0.0,
        lease_s: float | None = None,
        has_room: HasRoom | None = None,
        until: asyncio.Future[None] | None = None,
    ) -> list[Delivered]:
        """Take messages like `open`, in the core's form. The wait also ends when `until` is done."""
        service = self._service
        service.sender.check_name(queue, OWNER)
        until_us = 0 if lease_s is None else lease_us(lease_s)
        ends_s = None if wait_s is None else self._loop.time() + wait_s
        while True:
            found = service.sender.state().queues.get(queue)
            if found is not None and found.is_exclusive():
                reason = "the queue is exclusive; pull from it in a session, over HTTP or MessagePack-RPC"
                raise LmqError("exclusive", reason)
            left_s = None if ends_s is None else max(0.0, ends_s - self._loop.time())
            session = await self._session.id()
            holder = service.sessions.number(session)
            charge = int(found is not None and _has_dead_letters(found))
            unsent = unsent_in_session(charge, -1)
            options = PullOptions(PullInSession, (until_us, holder, charge, -1, OWNER))
            start = partial(self._turns.open, options)
            try:
                delivered = await service.delivered(start, queue, (count, left_s), has_room, unsent=unsent, until=until)
                if not delivered:
                    self._check_room(holder)
                if not delivered or self._session.is_surely_alive(session):
                    return delivered
                if await self._is_held(session, delivered, unsent):
                    return delivered
                # The session has ended in the meantime, and other clients get these messages.
            except LmqError as exc:
                if exc.code != "session_lost":
                    raise
                # Nothing was taken. The node opens another session.
                self._session.lost(session)

    def _check_room(self, holder: int) -> None:
        """Check, after a pull that brought nothing, that the node's session has room for more messages.

        Raises:
            LmqError: ``quota_exceeded``.
        """
        session = self._service.sender.state().sessions.find(holder, OWNER)
        if session is not None and len(session.leases) >= LEASES_MAX:
            reason = f"this node holds {LEASES_MAX} messages, which is the limit; confirm some, or use another node"
            raise LmqError("quota_exceeded", reason)

    async def _is_held(self, session: bytes, delivered: list[Delivered], unsent: Unsent) -> bool:
        """Return whether messages that arrived after the node may have been frozen or cut off are still open here.

        Raises:
            LmqError: the answer is unknown; the messages return to their places.
        """
        try:
            return await self._session.is_alive(session)
        except BaseException:
            self._service.pulls.put_back(delivered, unsent)
            raise

    async def take_settled(self, queue: bytes) -> list[Delivered]:
        """Take a message and remove it from its queue before this returns; none if there is none now.

        Raises:
            LmqError: like `QueueService.pull`. If the outcome is unknown, the message may be gone.
        """
        service = self._service
        service.sender.check_name(queue, OWNER)
        found = service.sender.state().queues.get(queue)
        if found is not None and _may_page(found):
            return await self._take_and_confirm(queue)
        start = partial(self._turns.open, PullOptions(Pull, (0, True)))
        return await service.delivered(start, queue, (1, 0.0), None)

    async def _take_and_confirm(self, queue: bytes) -> list[Delivered]:
        """Take a message whose body may have to be read first.

        While the read can still fail, the message must not leave its queue.
        """
        delivered = await self.take(queue)
        if not delivered:
            return []
        numbers = [number for _, number, _, _ in delivered]
        try:
            were_open = await self.confirm_soon(queue, numbers)
        except LmqError as exc:
            if exc.outcome is Outcome.NOT_APPLIED:
                self.abort_numbers_soon({queue: numbers})
            raise
        return [one for one, was_open in zip(delivered, were_open or [False], strict=True) if was_open]

    def confirm_soon(self, queue: bytes, numbers: Sequence[int]) -> asyncio.Future[list[bool] | None]:
        """Confirm these deliveries in this turn of the event loop, before the reads that are opened in it.

        Return a future that says which of them were open, None if there is no such queue.
        """
        return self._turns.confirm(queue, numbers)

    async def confirm(self, queue: bytes, ids: Sequence[bytes]) -> list[bool]:
        """Remove the messages. False for a message that is not open any more and may belong to another client."""
        parse = self._service.receipts().parse
        settled = await self.confirm_soon(queue, [parse(one) for one in ids])
        return [False] * len(ids) if settled is None else settled

    async def abort(self, queue: bytes, ids: Sequence[bytes]) -> list[bool]:
        """Return the messages to the head in the given order. False for a message that is not open any more."""
        parse = self._service.receipts().parse
        return await self.abort_numbers(queue, [parse(one) for one in ids])

    async def abort_numbers(self, queue: bytes, numbers: Sequence[int]) -> list[bool]:
        """Abort deliveries by their numbers, like `abort`."""
        command = Nack(queue, list(numbers), Place.HEAD, 0)
        settled: list[bool] | None = await self._service.sender.propose(command, 64 + 12 * len(numbers))
        return [False] * len(numbers) if settled is None else settled

    def abort_soon(self, held: Mapping[bytes, Sequence[bytes]]) -> None:
        """Return the messages of a closed connection, by queue, to the head in their order.

        The call does not wait for the outcome. If the node dies first, its session ends, with the same effect.
        """
        parse = self._service.receipts().parse
        self.abort_numbers_soon({queue: [parse(one) for one in ids] for queue, ids in held.items()})

    def abort_numbers_soon(self, held: Mapping[bytes, Sequence[int]]) -> None:
        """Abort deliveries by their numbers, like `abort_soon`."""
        for queue, numbers in held.items():
            # The last part goes to the head first, so that all parts end up in order.
            for start in range((len(numbers) - 1) // _NUMBERS_MAX * _NUMBERS_MAX, -1, -_NUMBERS_MAX):
                part = list(numbers[start : start + _NUMBERS_MAX])
                self._service.sender.proposer.add_first(
                    PendingCommand(Nack(queue, part, Place.HEAD, 0), [], ignore_result)
                )


def _has_dead_letters(queue: Queue) -> bool:
    options = queue.settings.options
    return options is not None and bool(options.dead_letters)


def _may_page(queue: Queue) -> bool:
    """Return whether the body of the next message may be paged out when the message is taken."""
    return queue.store.gathered is not None and bool(queue.store.gathered.chunks)
