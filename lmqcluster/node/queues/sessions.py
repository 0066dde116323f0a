"""Sessions for protocols: pulls whose leases end with the session, exclusive queues, locks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

from ...core.log.commands import EndSession, LeaveQueue, PullInSession, Unlock
from ...ports import ConnectionSlot
from ...wire.errors import LmqError
from ...wire.ids import ReceiptFormat
from ...wire.limits import NAME_BYTES_MAX, PULL_COUNT_MAX
from ..commit.proposer import PendingCommand
from .pulls.deliveries import Delivery
from .pulls.pull_options import PullOptions
from .pulls.unsent import Unsent, unsent_in_session
from .sending import requests
from .sending.command_sender import CommandSender, ignore_result
from .sending.log_waiters import LogWaiters
from .sending.naming import no_queue
from .sending.times import lease_us

__all__ = ["Sessions"]

HasRoom = Callable[[int], bool]


class Pull(Protocol):
    """The type of a function that pulls from a queue; `wanted` is the number of messages and the wait in seconds."""

    def __call__(
        self,
        queue: bytes,
        options: PullOptions,
        wanted: tuple[int, float | None],
        has_room: HasRoom | None,
        place: ConnectionSlot | None,
        *,
        unsent: Unsent,
    ) -> Awaitable[list[Delivery]]: ...


class Sessions:
    """The operations of sessions. Every asynchronous method raises `LmqError`.

    The error is ``session_lost`` if the session has ended and has released what it held.

    Args:
        sender: takes commands.
        board: delivers the notices of locks.
        receipts: returns the id format of this cluster life, which session ids use too.
        pull: takes pulls.
    """

    def __init__(
        self, sender: CommandSender, board: LogWaiters, receipts: Callable[[], ReceiptFormat], pull: Pull
    ) -> None:
        self._sender = sender
        self._board = board
        self._receipts = receipts
        self._pull = pull

    async def open(self, ttl_s: float, owner: bytes = b"") -> bytes:
        """Begin a session that ends `ttl_s` seconds after its last renewal; return its id. Raises ``quota_exceeded``."""
        sender = self._sender
        number: int = await sender.ask(requests.open_session(sender, ttl_s, owner))
        return self._receipts().format(number)

    async def renew(self, session: bytes, owner: bytes = b"") -> bool:
        """Renew a session for its full lifetime; False if it has ended."""
        return await self._ask(requests.renew_session, session, owner)

    async def end(self, session: bytes, owner: bytes = b"") -> bool:
        """End a session and release all that it holds; False if it has already ended."""
        return await self._ask(requests.end_session, session, owner)

    def end_soon(self, session: bytes, owner: bytes = b"") -> asyncio.Future[None]:
        """End a session, even while clients are refused.

        The returned future never fails and need not be awaited.
        """
        return self._sender.send_first(EndSession(self.number(session), owner))

    async def _ask(self, request: Callable[[int, bytes], requests.Request], session: bytes, owner: bytes) -> bool:
        return bool(await self._sender.ask(request(self.number(session), owner)))

    def number(self, session: bytes) -> int:
        """Return the number of a session, 0 if the text is not the id of one."""
        return self._receipts().parse(session)

    def known(self, after: bytes | None) -> int:
        """Return the number of the last delivery that a client has received, 0 for none, -1 if `after` is None.

        Raises:
            LmqError: ``bad_request`` if the text is not the id of a message.
        """
        if not after:
            return -1 if after is None else 0
        number = self._receipts().parse(after)
        if not number:
            raise LmqError("bad_request", "after must be the id of a message, or empty")
        return number

    # --- pull -----------------------------------------------------------------------------------------------------

    async def pull(
        self,
        queue: bytes,
        session: bytes,
        *,
        count: int = 1,
        wait_s: float | None = 0.0,
        lease_s: float | None = None,
        charge: int = 1,
        after: bytes | None = None,
        has_room: HasRoom | None = None,
        owner: bytes = b"",
        place: ConnectionSlot | None = None,
    ) -> list[Delivery]:
        """Lease up to `count` messages until the session ends or `lease_s` seconds have passed; see `QueueService.pull`.

        `after` is the id of the last message of the queue that the client has received in this session, empty if there
        is none. With it, later messages that the session already holds are returned again instead of others, because
        their responses were lost.

        Of several sessions that pull from an exclusive queue, one gets messages. The others stand by in the order of
        their first pulls. `charge` is how many of a message's deliveries the pull uses up, 0 or 1.
        """
        sender = self._sender
        sender.check_name(queue, owner)
        if not 0 < count <= PULL_COUNT_MAX:
            raise LmqError("bad_request", f"a pull takes 1 to {PULL_COUNT_MAX} messages, not {count}")
        until_us = 0 if lease_s is None else lease_us(lease_s)
        number, known = self.number(session), self.known(after)
        options = PullOptions(PullInSession, (until_us, number, charge, known, owner))
        return await self._pull(
            queue, options, (count, wait_s), has_room, place, unsent=unsent_in_session(charge, known)
        )

    async def leave(self, queue: bytes, session: bytes, owner: bytes = b"") -> bool:
        """Give up the turn or the standby place at an exclusive queue; leases of its messages end.

        False if the session had neither.
        """
        sender = self._sender
        if len(queue) > NAME_BYTES_MAX:
            raise no_queue(queue)
        command = LeaveQueue(queue, self.number(session), owner)
        while (left := await sender.propose(command, 64)) is None:
            pass
        return bool(left)

    def line(self, queue: bytes) -> tuple[bytes | None, int]:
        """Return the session that has an exclusive queue, None if there is none; and how many stand by."""
        claims = self._sender.state().claims
        holder = claims.holder(queue)
        return (self._receipts().format(holder), claims.length(queue) - 1) if holder else (None, 0)

    def lock_state(self, name: bytes) -> tuple[int | None, int]:
        """Return the fencing token of the session that has a lock, None if there is none; and how many sessions wait."""
        locks = self._sender.state().locks
        return (locks.token(name), locks.length(name) - 1) if locks.holder(name) else (None, 0)

    # --- locks ----------------------------------------------------------------------------------------------------

    async def lock(self, name: bytes, session: bytes, wait_s: float | None = 0.0, owner: bytes = b"") -> int | None:
        """Acquire a lock; wait up to `wait_s` seconds (None: without end) in the order of requests.

        Returns:
            The fencing token, larger than every token given before; None if another session had the lock all the time.
        """
        sender, number = self._sender, self.number(session)
        requests.check_lock_name(name)
        waits = wait_s is None or wait_s > 0
        # Register before asking: the notice may arrive with the batch that applies the request.
        granted = self._board.lock(name, number)
        try:
            token: int = await sender.ask(requests.lock(name, number, owner, waits=waits))
            if token or not waits:
                return token or None
            return await asyncio.wait_for(granted, wait_s)
        except TimeoutError:
            held = await sender.ask(requests.lock(name, number, owner, waits=False))
            if held:
                return int(held)
            await sender.ask(requests.unlock(name, number, owner))
            return None
        except asyncio.CancelledError:
            sender.proposer.add_first(PendingCommand(Unlock(name, number, owner), [], ignore_result))
            raise
        finally:
            granted.cancel()

    async def unlock(self, name: bytes, session: bytes, owner: bytes = b"") -> bool:
        """Release a lock; False if the session did not have it."""
        sender = self._sender
        return bool(await sender.ask(requests.unlock(name, self.number(session), owner)))
