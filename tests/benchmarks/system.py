"""The interface of a measured queue system. One module per system implements it; load and clock are the same for all.

Everything a system does inside a timed section goes through a `Link`. Its operations are bare callables that return
awaitables, so that the harness adds no layer to the client library of one system that another one lacks.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, ClassVar

from .cases import Case, Mode

Message = Any
"""A delivered message in the form of the system's client library."""


class Tally:
    """The number of messages that a set of consumers still has to take, and the taken ones. All consumers of
    a case share it.
    """

    def __init__(self, count: int) -> None:
        self._unreserved = count
        self._count = count
        self.contents: list[bytes] = []
        self.complete = asyncio.Event()

    def reserve(self, at_most: int = 1) -> int:
        """Claim up to this many messages; return 0 when all are claimed."""
        claimed = min(at_most, self._unreserved)
        self._unreserved -= claimed
        return claimed

    def give_back(self, count: int) -> None:
        """Return a claim that did not yield a message."""
        self._unreserved += count

    def add(self, content: bytes) -> None:
        """Add a message that was taken and answered."""
        self.contents.append(content)
        if len(self.contents) >= self._count:
            self.complete.set()


class Receiver:
    """A consumer that waits for single messages, to time a push until the pull that it wakes."""

    def __init__(
        self, receive: Callable[[], Awaitable[Message]], settled: Callable[[], Awaitable[object]] | None = None
    ) -> None:
        self.receive = receive
        """Receives the next message. The caller starts this as a task before the message is pushed."""
        self._settled = settled

    async def settled(self) -> None:
        """Return when the node has seen the waiting consumer, as far as the protocol can show it."""
        await asyncio.sleep(0)  # The receiving task sends its request first.
        if self._settled is not None:
            await self._settled()


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """One connection to one node, bound to one queue. Operations that a system lacks are ``None``."""

    push: Callable[[bytes], Awaitable[object]]
    pull: Callable[[], Awaitable[Message]]
    """Takes a message that is ready."""
    done: Callable[[Message], Awaitable[object]]
    content_of: Callable[[Message], bytes]
    consume: Callable[[Tally], Coroutine[Any, Any, None]]
    """Takes and answers messages in the best way of this system, at most 256 unanswered, until the tally is complete;
    returns when the answers have taken effect.
    """
    receiver: Callable[[], AbstractAsyncContextManager[Receiver]]
    done_is_confirmed: bool = True
    """True if `done` returns only after the cluster has agreed. Otherwise `settle` waits for that."""
    settle: Callable[[], Awaitable[None]] | None = None
    push_many: Callable[[list[bytes]], Awaitable[object]] | None = None
    pull_many: Callable[[int], Awaitable[list[Message]]] | None = None
    done_many: Callable[[list[Message]], Awaitable[object]] | None = None


class System(ABC):
    """A queue system of three real server processes on loopback, its data in a temporary directory."""

    name: ClassVar[str]
    modes: ClassVar[frozenset[Mode]]
    note: ClassVar[str]
    """Information for judging the figures: the mapping of operations, and what is on disk when."""

    @classmethod
    def missing(cls) -> str | None:
        """Return one line with the reason why the system cannot run here and the remedy; ``None`` if it can."""
        return None

    @abstractmethod
    async def start(self) -> None:
        """Start the servers and return when all three serve requests and agree on a leader."""

    @abstractmethod
    async def stop(self) -> None:
        """Stop every started process, and remove the data. A no-op if nothing runs."""

    @abstractmethod
    def version(self) -> str:
        """Return the versions of servers and client."""

    @abstractmethod
    def durability(self) -> str:
        """Return the state of a message when its push is acknowledged, in a few words."""

    @abstractmethod
    def queue(self, name: str, case: Case) -> AbstractAsyncContextManager[Sequence[Link]]:
        """Yield the links to a new queue: one for the leader or a follower, three for all nodes. (In the HTTP modes:
        several connections to each of these nodes.)

        On leaving, after all messages were answered, it is deleted.

        Raises:
            LostMessagesError: messages are left on leaving.
        """


class LostMessagesError(Exception):
    """The count of messages, or their contents, are wrong. The benchmark has failed."""
