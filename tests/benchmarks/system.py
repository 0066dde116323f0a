"""What a queue system must offer to be measured. One module per system implements it; load and clock are the same for all.

Everything a system does inside a timed section goes through a `Link`. Its operations are bare callables that return
awaitables, so that the harness adds no layer of its own to the client library of one system that another does not pay.
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
"""A delivered message in whatever form the client library of the system gives it."""


class Tally:
    """How many messages a set of consumers still has to take, and what they took. Shared by all consumers of one case."""

    def __init__(self, count: int) -> None:
        self._unreserved = count
        self._count = count
        self.contents: list[bytes] = []
        self.complete = asyncio.Event()

    def reserve(self, at_most: int = 1) -> int:
        """Claim up to this many messages to take; 0 when all are claimed."""
        claimed = min(at_most, self._unreserved)
        self._unreserved -= claimed
        return claimed

    def give_back(self, count: int) -> None:
        """Return a claim that did not yield a message."""
        self._unreserved += count

    def add(self, content: bytes) -> None:
        """A message was taken and answered."""
        self.contents.append(content)
        if len(self.contents) >= self._count:
            self.complete.set()


class Receiver:
    """A consumer that waits for single messages, for the time from a push to the pull that it wakes."""

    def __init__(
        self, receive: Callable[[], Awaitable[Message]], settled: Callable[[], Awaitable[object]] | None = None
    ) -> None:
        self.receive = receive
        """The next message. The caller starts this as a task before the message is pushed."""
        self._settled = settled

    async def settled(self) -> None:
        """Return when the node has seen that somebody waits, as far as the protocol can tell."""
        await asyncio.sleep(0)  # The task that receives gets to send its request first.
        if self._settled is not None:
            await self._settled()


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """One connection to one node, bound to one queue. Operations that a system does not have are ``None``."""

    push: Callable[[bytes], Awaitable[object]]
    pull: Callable[[], Awaitable[Message]]
    """Takes a message that is there."""
    done: Callable[[Message], Awaitable[object]]
    content_of: Callable[[Message], bytes]
    consume: Callable[[Tally], Coroutine[Any, Any, None]]
    """Takes and answers messages the way that is best on this system, at most 256 unanswered, until the tally is complete;
    returns when the answers have taken effect."""
    receiver: Callable[[], AbstractAsyncContextManager[Receiver]]
    done_is_confirmed: bool = True
    """Whether `done` returns only after the cluster has agreed. Otherwise `settle` waits for that."""
    settle: Callable[[], Awaitable[None]] | None = None
    push_many: Callable[[list[bytes]], Awaitable[object]] | None = None
    pull_many: Callable[[int], Awaitable[list[Message]]] | None = None
    done_many: Callable[[list[Message]], Awaitable[object]] | None = None


class System(ABC):
    """A queue system of three real server processes on loopback, its data in a temporary directory."""

    name: ClassVar[str]
    modes: ClassVar[frozenset[Mode]]
    note: ClassVar[str]
    """What a reader must know to judge the figures: how operations are mapped, what is on disk when."""

    @classmethod
    def missing(cls) -> str | None:
        """Why the system cannot run here and what to do about it, in one line; ``None`` if it can."""
        return None

    @abstractmethod
    async def start(self) -> None:
        """Start the servers and return when all three serve requests and agree on a leader."""

    @abstractmethod
    async def stop(self) -> None:
        """End every process that was started, and remove the data. Harmless if nothing runs."""

    @abstractmethod
    def version(self) -> str:
        """Version of servers and client."""

    @abstractmethod
    def durability(self) -> str:
        """What has happened to a message when its push is acknowledged, in a few words."""

    @abstractmethod
    def queue(self, name: str, case: Case) -> AbstractAsyncContextManager[Sequence[Link]]:
        """A fresh queue and the links to it: one for the leader or a follower, three for all nodes. (In the HTTP modes: so many
        connections to each of these nodes.)

        On leaving, after all messages were answered, it is deleted.

        Raises:
            LostMessagesError: messages are left on leaving.
        """


class LostMessagesError(Exception):
    """The count of messages, or their contents, did not come out. The benchmark has failed."""
