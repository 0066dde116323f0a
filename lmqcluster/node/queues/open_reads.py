"""Messages that connections hold: leases of the node's session, which return to the head when connection or node is gone."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence

from ...core import Op
from ...core.commands import Place
from ...wire.errors import LmqError
from ..proposer import Group
from .deliveries import Delivery
from .node_session import OWNER, NodeSession
from .proposals import unheard
from .service import QueueService

__all__ = ["OpenReads"]

HasRoom = Callable[[int], bool]
_NUMBERS_MAX = 1_000


class OpenReads:
    """For protocols whose messages belong to a connection until it confirms them.

    A message that is opened and aborted uses up none of its deliveries, and stays open as long as its connection.

    Args:
        service: the queues.
        session: the node's.
    """

    def __init__(self, service: QueueService, session: NodeSession) -> None:
        self._service = service
        self._session = session
        self._loop = asyncio.get_running_loop()

    def on_lost(self, listener: Callable[[], None]) -> None:
        """Be called when others have got what this node's connections held: these have to be closed."""
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
        """Take up to `count` messages out of the queue, waiting up to `wait_s` seconds (None: for ever) for the first.

        They stay open until they are confirmed or aborted, or `lease_s` is over.

        Raises:
            LmqError: as `QueueService.pull`; ``exclusive`` for an exclusive queue, which connections of a node would share.
        """
        service = self._service
        ends_s = None if wait_s is None else self._loop.time() + wait_s
        while True:
            found = service.machine().queues.get(queue)
            if found is not None and found.is_exclusive():
                reason = "the queue is exclusive; pull from it in a session, over HTTP or MessagePack-RPC"
                raise LmqError("exclusive", reason)
            left_s = None if ends_s is None else max(0.0, ends_s - self._loop.time())
            session = await self._session.id()
            try:
                return await service.sessions.pull(
                    queue,
                    session,
                    count=count,
                    wait_s=left_s,
                    lease_s=lease_s,
                    charge=0,
                    has_room=has_room,
                    owner=OWNER,
                )
            except LmqError as exc:
                if exc.code != "session_lost":
                    raise
                # Nothing was taken. The node opens another session.
                self._session.lost(session)

    async def confirm(self, queue: bytes, ids: Sequence[bytes]) -> list[bool]:
        """The messages are gone. False for one that is not open any more, and may be somebody else's."""
        return await self._settled(self._service.ack(queue, ids), len(ids))

    async def abort(self, queue: bytes, ids: Sequence[bytes]) -> list[bool]:
        """The messages return to the head, in the order in which they are given. False for one that is not open any more."""
        return await self._settled(self._service.nack(queue, ids, Place.HEAD, 0.0), len(ids))

    async def _settled(self, settling: Awaitable[list[bool]], count: int) -> list[bool]:
        try:
            return await settling
        except LmqError as exc:
            if exc.code != "queue_not_found":
                raise
            return [False] * count

    def abort_soon(self, held: Mapping[bytes, Sequence[bytes]]) -> None:
        """A connection is gone: what it held, by queue, returns to the head in order. Nothing waits for it.

        Should the node die first, its session ends, with the same effect.
        """
        parse = self._service.receipts().parse
        for queue, ids in held.items():
            numbers = [parse(one) for one in ids]
            # The last ones go to the head first, so that all of them stand in order there.
            for start in range((len(numbers) - 1) // _NUMBERS_MAX * _NUMBERS_MAX, -1, -_NUMBERS_MAX):
                part = numbers[start : start + _NUMBERS_MAX]
                self._service.proposer.add_first(Group([Op.GIVE_BACK, queue, part, int(Place.HEAD), 0], [], unheard))
