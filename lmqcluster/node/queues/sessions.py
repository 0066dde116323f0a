"""Sessions as front ends use them: pulls whose leases end with the session, exclusive queues, locks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

from ...core.log import command_layout as layout
from ...core.log.command_layout import Asked
from ...ports import ConnectionSlot
from ...wire.errors import LmqError
from ...wire.ids import ReceiptFormat
from ...wire.limits import NAME_BYTES_MAX, PULL_COUNT_MAX
from ..commit.proposer import PendingCommand
from .pulls.deliveries import Delivery
from .pulls.unsent import Unsent, unsent_in_session
from .sending import requests
from .sending.command_sender import CommandSender, unheard
from .sending.log_waiters import LogWaiters
from .sending.naming import no_queue
from .sending.times import lease_us

__all__ = ["Sessions"]

HasRoom = Callable[[int], bool]


class Pull(Protocol):
    """Pulls from a queue, asking for this, so many messages and so long."""

    def __call__(
        self,
        queue: bytes,
        asked: Asked,
        wanted: tuple[int, float | None],
        has_room: HasRoom | None,
        place: ConnectionSlot | None,
        *,
        unsent: Unsent,
    ) -> Awaitable[list[Delivery]]: ...


class Sessions:
    """Every asynchronous method raises `LmqError`; ``session_lost`` if the session has ended, and with it what it held.

    Args:
        service: takes commands.
        board: tells of locks.
        receipts: the ids of this cluster life, which sessions have too.
        pull: takes pulls.
    """

    def __init__(
        self, service: CommandSender, board: LogWaiters, receipts: Callable[[], ReceiptFormat], pull: Pull
    ) -> None:
        self._service = service
        self._board = board
        self._receipts = receipts
        self._pull = pull

    async def open(self, ttl_s: float, owner: bytes = b"") -> bytes:
        """Begin a session that ends `ttl_s` seconds after its last renewal; returns its id. Raises ``quota_exceeded``."""
        service = self._service
        number: int = await service.ask(requests.open_session(service, ttl_s, service.owned(owner)))
        return self._receipts().format(number)

    async def renew(self, session: bytes, owner: bytes = b"") -> bool:
        """Let a session live its whole time from now; False if it has ended."""
        return await self._ask(requests.renew_session, session, owner)

    async def end(self, session: bytes, owner: bytes = b"") -> bool:
        """End a session with all that it holds; False if it has ended before."""
        return await self._ask(requests.end_session, session, owner)

    def end_soon(self, session: bytes, owner: bytes = b"") -> asyncio.Future[None]:
        """As `end`, also while clients are refused. Nobody has to wait for what is returned; it never fails."""
        return self._service.send_first(layout.end_session(self.number(session), *self._service.owned(owner)))

    async def _ask(self, request: Callable[[int, list[bytes]], requests.Request], session: bytes, owner: bytes) -> bool:
        service = self._service
        return bool(await service.ask(request(self.number(session), service.owned(owner))))

    def number(self, session: bytes) -> int:
        """The number of a session, 0 if the text is no id of one."""
        return self._receipts().parse(session)

    def known(self, after: bytes | None) -> int:
        """The number of the last delivery that a client has received, 0 for none; -1 if it says nothing of it.

        Raises:
            LmqError: ``bad_request`` if the text is no id of a message.
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
        """Lease up to `count` messages until the session ends, or `lease_s` is over; see `QueueService.pull`.

        With `after`, the id of the last message of the queue that the client has received in this session, or empty if there is
        none, later ones that the session holds are returned again instead of others: their responses were lost.

        Of several sessions that pull from an exclusive queue one gets messages, the others stand by in the order in which they
        first asked. `charge` is how many of a message's deliveries it uses up, 0 or 1.
        """
        service = self._service
        service.check_name(queue, owner)
        if not 0 < count <= PULL_COUNT_MAX:
            raise LmqError("bad_request", f"a pull takes 1 to {PULL_COUNT_MAX} messages, not {count}")
        until_us = 0 if lease_s is None else lease_us(lease_s)
        number, known = self.number(session), self.known(after)
        asked = layout.asks_in_session(until_us, number, charge, known, *service.owned(owner))
        return await self._pull(queue, asked, (count, wait_s), has_room, place, unsent=unsent_in_session(charge, known))

    async def leave(self, queue: bytes, session: bytes, owner: bytes = b"") -> bool:
        """Give up the turn, or the place in line, at an exclusive queue; leases of its messages end. False if it had none."""
        service = self._service
        if len(queue) > NAME_BYTES_MAX:
            raise no_queue(queue)
        command = layout.leave_queue(queue, self.number(session), *service.owned(owner))
        while (left := await service.propose(command, 64)) is None:
            pass
        return bool(left)

    def line(self, queue: bytes) -> tuple[bytes | None, int]:
        """The session that has an exclusive queue, None if none has; and how many stand by."""
        claims = self._service.machine().claims
        holder = claims.holder(queue)
        return (self._receipts().format(holder), claims.length(queue) - 1) if holder else (None, 0)

    def lock_state(self, name: bytes) -> tuple[int | None, int]:
        """The token of the session that has a lock, None if none has it; and how many sessions wait."""
        locks = self._service.machine().locks
        return (locks.token(name), locks.length(name) - 1) if locks.holder(name) else (None, 0)

    # --- locks ----------------------------------------------------------------------------------------------------

    async def lock(self, name: bytes, session: bytes, wait_s: float | None = 0.0, owner: bytes = b"") -> int | None:
        """Get a lock, waiting up to `wait_s` seconds (None: for ever) in the order of requests.

        Returns:
            The fencing token, larger than every token given before; None if another session had the lock all the time.
        """
        service, number = self._service, self.number(session)
        requests.check_lock_name(name)
        owned = service.owned(owner)
        waits = wait_s is None or wait_s > 0
        # From now on, because the notice may come with the same batch.
        granted = self._board.lock(name, number)
        try:
            token: int = await service.ask(requests.lock(name, number, owned, waits=waits))
            if token or not waits:
                return token or None
            return await asyncio.wait_for(granted, wait_s)
        except TimeoutError:
            held = await service.ask(requests.lock(name, number, owned, waits=False))
            if held:
                return int(held)
            await service.ask(requests.unlock(name, number, owned))
            return None
        except asyncio.CancelledError:
            service.proposer.add_first(PendingCommand(layout.unlock(name, number, *owned), [], unheard))
            raise
        finally:
            granted.cancel()

    async def unlock(self, name: bytes, session: bytes, owner: bytes = b"") -> bool:
        """Free a lock; False if the session did not have it."""
        service = self._service
        return bool(await service.ask(requests.unlock(name, self.number(session), service.owned(owner))))
