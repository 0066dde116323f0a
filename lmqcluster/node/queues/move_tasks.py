"""Tasks that move the messages of a queue, for protocols: starting, cancelling and listing them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...core import Role
from ...core.handlers.move_tasks import ORIGINS_MAX
from ...core.log.commands import CancelMoveTask, StartMoveTask
from ...core.routing.move_tasks import RATE_MAX, MoveTask
from ...wire.errors import LmqError
from ...wire.limits import NAME_BYTES_MAX
from .sending.command_sender import CommandSender
from .sending.naming import no_queue
from .views.listing import each_queue

if TYPE_CHECKING:
    from ..access.access import Principal

__all__ = ["MoveTaskInfo", "MoveTasks"]

_BYTES = 64 + 2 * NAME_BYTES_MAX


@dataclass(frozen=True, slots=True)
class MoveTaskInfo:
    """A task.

    Attributes:
        number: names it among all tasks of the cluster.
        source: the queue whose messages it moves.
        destination: where they go; None for the queues from which they came, and if it is hidden.
        hides_destination: whether there is a destination that the client's token does not cover.
        rate: most messages in a second; None for no limit.
        status: ``RUNNING``, ``COMPLETED``, ``CANCELLED`` or ``FAILED``.
        moved, to_move: messages moved so far; messages that the source had for it at the start.
        started_us: when it was started, in microseconds since 1970.
        failure: an error code if it failed, else None.
    """

    number: int
    source: bytes
    destination: bytes | None
    hides_destination: bool
    rate: int | None
    status: str
    moved: int
    to_move: int
    started_us: int
    failure: str | None

    def row(self) -> dict[str, Any]:
        """Return it as the node's own protocols show it, without ``to`` if the destination is hidden."""
        return {
            "number": self.number,
            "status": self.status.lower(),
            **({} if self.hides_destination else {"to": self.destination}),
            "rate": self.rate,
            "moved": self.moved,
            "to_move": self.to_move,
            "started_at": self.started_us / 1e6,
            "failure": self.failure,
        }


class MoveTasks:
    """The operations. Every method raises `LmqError`.

    Args:
        sender: sends the commands.
        unix_us: converts log time to Unix time, both in microseconds.
    """

    def __init__(self, sender: CommandSender, unix_us: Callable[[int], int]) -> None:
        self._sender = sender
        self._unix_us = unix_us

    async def start(
        self,
        source: bytes,
        destination: bytes | None = None,
        *,
        rate: int | None = None,
        principal: Principal,
        client: bytes = b"",
    ) -> int:
        """Start to move the messages of a queue; return the number of the task.

        Without a destination, each message that the cluster has moved to the source goes back where it came from, and the
        others stay. If the principal's permissions cover only some queues, messages return only to those of them that
        name the source as their `dead_letter_queue` now; `client` is who pays for the search.

        Raises:
            LmqError: ``queue_not_found`` for either queue; ``conflict`` if a task of the source runs; ``forbidden``;
                ``bad_request`` for a wrong rate, or if both queues are the same.
        """
        if rate is not None and not 0 < rate <= RATE_MAX:
            raise LmqError("bad_request", f"a rate is 1 to {RATE_MAX} messages a second, not {rate}")
        if source == destination:
            raise LmqError("bad_request", "messages cannot be moved to the queue in which they are")
        for name in (source, destination):
            if name is not None and not 0 < len(name) <= NAME_BYTES_MAX:
                raise no_queue(name)
        origins: list[bytes] | None = None
        if destination is not None:
            principal.require(Role.WRITE, destination)
        elif not principal.everywhere:
            origins = await self._origins(source, principal, client)
        command = StartMoveTask(source, destination or b"", rate or 0, origins)
        return int(await self._sender.propose(command, _BYTES + sum(map(len, origins or ()))))

    async def _origins(self, source: bytes, principal: Principal, client: bytes) -> list[bytes]:
        """Return the queues that dead-letter to a queue and to which the principal may write."""
        await self._sender.look_up()
        found: list[bytes] = []
        async for queue in each_queue(self._sender.state, self._sender.turns, client):
            options = queue.settings.options
            if options is not None and options.dead_letters == source and principal.covers(queue.name):
                principal.require(Role.WRITE, queue.name)
                found.append(queue.name)
                if len(found) == ORIGINS_MAX:
                    break
        return found

    async def cancel(self, source: bytes, number: int) -> int:
        """Cancel a running task; return how many messages it has moved. Raises ``task_not_found`` if it does not run."""
        return int(await self._sender.propose(CancelMoveTask(source[: NAME_BYTES_MAX + 1], number), _BYTES))

    def known(self, source: bytes, principal: Principal) -> list[MoveTaskInfo]:
        """Return the latest tasks of a queue as the local replica has them, for a client. Raises like `list`."""
        if source not in self._sender.state().queues:
            raise no_queue(source)
        return [self._info(task, principal) for task in self._sender.state().move_tasks.of(source)]

    async def list(self, source: bytes, principal: Principal) -> list[MoveTaskInfo]:
        """Return the latest tasks of a queue, the newest first, at most 10. Raises ``queue_not_found``."""
        await self._sender.look_up()
        return self.known(source, principal)

    def _info(self, task: MoveTask, principal: Principal) -> MoveTaskInfo:
        hides_destination = task.destination != b"" and not principal.covers(task.destination)
        return MoveTaskInfo(
            number=task.number,
            source=task.source,
            destination=None if hides_destination else task.destination or None,
            hides_destination=hides_destination,
            rate=task.rate or None,
            status=task.status.name,
            moved=task.moved,
            to_move=task.to_move,
            started_us=self._unix_us(task.started_us),
            failure=task.failure.decode() or None,
        )
