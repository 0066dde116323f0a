"""Open reads without a task: for requests that need one command."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from ...core.commands import Delivered
from ...wire.errors import LmqError
from .deliveries import first_of
from .lines import Waiter
from .node_session import NodeSession
from .service import QueueService, no_room
from .unsent import Unsent

__all__ = ["DirectRead", "HasRoom", "Taker"]

HasRoom = Callable[[int], bool]


class Taker(Protocol):
    """Who wants one message."""

    @property
    def closed(self) -> bool:
        """It is gone; what arrives for it is put back."""

    def taken(self, delivered: list[Delivered]) -> None:
        """The message, or none: others were faster."""

    def failed(self, error: LmqError) -> None:
        """The read was refused, or its outcome is unknown."""

    def not_taken(self) -> None:
        """The cluster may have ended the node's session. Nothing was taken; to find out is for one who can wait."""


class DirectRead:
    """Where the outcome goes (`Puller`).

    Args:
        service: the queues.
        session: the node's.
        number: the number of the session that holds what comes; None if it is gone when it comes.
        taker: who asks.
        has_room: whether the client can take so many bytes.
        unsent: what becomes of deliveries that cannot be handed over.
    """

    __slots__ = ("_has_room", "_number", "_service", "_session", "_taker", "_unsent", "waiting")

    def __init__(
        self,
        service: QueueService,
        session: NodeSession,
        number: int | None,
        taker: Taker,
        has_room: HasRoom,
        *,
        unsent: Unsent,
    ) -> None:
        self._service = service
        self._session = session
        self._number = number
        self._taker = taker
        self._has_room = has_room
        self._unsent = unsent
        self.waiting: set[Waiter] = set()

    @property
    def place(self) -> None:
        """The node's session holds what comes, or nobody does."""
        return None

    @property
    def closed(self) -> bool:
        return self._taker.closed

    def may_wait(self) -> bool:
        return True

    def pulled(self, _token: Any, delivered: list[Delivered]) -> None:
        if delivered and self._number is not None:
            if self._session.sure_number() != self._number:
                self._put_back(delivered)
                self._taker.not_taken()
                return
            _, size_bytes = first_of(delivered)
            if not self._has_room(size_bytes):
                self._put_back(delivered)
                self._taker.failed(no_room())
                return
        self._taker.taken(delivered)

    def _put_back(self, delivered: list[Delivered]) -> None:
        self._service.pulls.put_back(delivered, self._unsent)

    def pull_failed(self, _token: Any, error: LmqError) -> None:
        if error.code == "session_lost":
            if self._number is not None:
                self._session.ended(self._number)
            self._taker.not_taken()
        else:
            self._taker.failed(error)
