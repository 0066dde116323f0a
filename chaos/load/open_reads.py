"""A node with open reads is killed, cut off, or paused for longer than a session lives.

The messages being read must return to the head of their queue, in order and soon, and the node must not confirm any of
them afterwards, because other consumers hold them by that time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import ClassVar

from lmqcluster import Client, LmqError
from lmqcluster.client import SyncMessage

from ..errors import BrokenPromiseError, DrillError
from ..faults.base import TargetedFault
from ..faults.network import Partition
from ..nodes.node_process import NodeProcess
from ..stage import Stage
from .readers import MemcacheReader, Reader, SessionReader

__all__ = ["OpenReads", "describe_misplaced"]

_HOW = ("kill", "pause", "cut")
_LEASE_S = 600.0
_CLIENT_S = 60.0
_RETURN_S = 120.0
"""After this time, the messages being read count as lost."""


@dataclass
class _Held:
    """The open reads of one protocol, and their outcome."""

    queue: str
    reader: Reader
    contents: list[bytes] = field(default_factory=list)
    returned: list[SyncMessage] = field(default_factory=list)


@dataclass
class OpenReads(TargetedFault):
    """Reads are open at a node when it is killed, cut off from the others, or paused.

    Attributes:
        how: ``kill``, ``cut`` or ``pause``.
        messages: number of open reads in each protocol.
        returned_s: time within which all must be deliverable again; 0 is unlimited.
    """

    kind: ClassVar[str] = "open_reads"
    how: str = "kill"
    messages: int = 20
    returned_s: float = 10.0
    _held: list[_Held] = field(default_factory=list, init=False)
    _mend: Callable[[], None] | None = field(default=None, init=False)
    _returned: bool = field(default=False, init=False)
    _open: ExitStack = field(default_factory=ExitStack, init=False)

    def check(self) -> str | None:
        """Check that the word is known."""
        return None if self.how in _HOW else f"how must be one of {', '.join(_HOW)}"

    def strike(self, stage: Stage) -> None:
        """Open reads, break the node, and check that the messages return elsewhere.

        Raises:
            BrokenPromiseError: they return late, in another order, or not at all.
            DrillError: the reads could not be opened.
        """
        node = self.nodes[0]
        try:
            client = self._open.enter_context(Client(_others(stage, node), timeout_s=_CLIENT_S, discover=False))
            self._open_all(stage, node, client)
            self._break(stage, node)
            began_s = time.monotonic()
            for held in self._held:
                held.returned = _pull_all(client, held.queue, self.messages)
            took_s = time.monotonic() - began_s
        except LmqError as exc:
            raise DrillError(f"the open reads of {node.name}: {exc}") from exc
        stage.notes.append(
            f"{len(self._held) * self.messages} open reads of {node.name} ({self.how}): deliverable again after {took_s:.2f} s"
        )
        for held in self._held:
            _must_be(held, [bytes(message.content) for message in held.returned], "after the node was lost")
        if self.returned_s and took_s > self.returned_s * stage.time_factor:
            raise BrokenPromiseError(
                f"open reads of {node.name} were deliverable again after {took_s:.2f} s, limit {self.returned_s:g} s"
            )
        self._returned = True

    def end(self, stage: Stage) -> None:
        """Confirm everything through the node, which continues only now, and check that no confirmation succeeded.

        Raises:
            BrokenPromiseError: the node confirmed a message that another consumer held.
        """
        with self._open:
            for held in self._held:
                held.reader.send_confirmations()
            if self._mend is not None:
                self._mend()
            confirmed = [found for held in self._held for found in held.reader.answers()]
            if not self._returned:
                return
            if confirmed:
                raise BrokenPromiseError(f"{len(confirmed)} acks of lost sessions succeeded, such as {confirmed[0]}")
            try:
                with Client(_addresses(stage), timeout_s=_CLIENT_S, discover=False) as client:
                    for held in self._held:
                        _settle(client, held)
            except LmqError as exc:
                raise DrillError(f"after the open reads: {exc}") from exc

    def _open_all(self, stage: Stage, node: NodeProcess, client: Client) -> None:
        readers: list[tuple[str, Reader]] = [
            ("session", SessionReader(f"127.0.0.1:{node.ports.rpc}", _queue("session")))
        ]
        if node.ports.memcache:
            readers.append(("memcache", MemcacheReader(node.ports.memcache, _queue("memcache"))))
        for name, reader in readers:
            self._open.callback(reader.close)
            held = _Held(_queue(name), reader)
            held.contents = [b"%s-%06d" % (name.encode(), number) for number in range(self.messages)]
            client.push_many(held.queue, held.contents)
            self._held.append(held)
            _must_be(held, reader.take(self.messages), "when they were read first")

    def _break(self, stage: Stage, node: NodeProcess) -> None:
        if self.how == "kill":
            node.kill()
            self._mend = node.start
        elif self.how == "pause":
            node.pause()
            self._mend = node.resume
        else:
            cut = Partition(target=node.name)
            cut.begin(stage)
            self._mend = lambda: cut.end(stage)


def describe_misplaced(wanted: Sequence[bytes], found: Sequence[bytes]) -> str | None:
    """Return how messages differ from the expected ones; None if they do not."""
    if list(wanted) == list(found):
        return None
    missing, odd = sorted(set(wanted) - set(found)), sorted(set(found) - set(wanted))
    if missing or odd:
        return f"{len(missing)} are missing, such as {missing[:3]}, {len(odd)} are unknown, such as {odd[:3]}"
    if len(found) != len(wanted):
        return f"{len(found)} arrived instead of {len(wanted)}: some arrived twice"
    place = next(number for number, (one, other) in enumerate(zip(wanted, found, strict=True)) if one != other)
    return f"position {place} has {found[place]!r} instead of {wanted[place]!r}"


def _must_be(held: _Held, found: Sequence[bytes], when: str) -> None:
    problem = describe_misplaced(held.contents, found)
    if problem is not None:
        raise BrokenPromiseError(f"messages of {held.queue} {when}: {problem}")


def _settle(client: Client, held: _Held) -> None:
    """Return the messages to the queue through their current holder; check that all exist, in order, and can be acked
    once.
    """
    client.put_back_many(held.queue, [message.id for message in held.returned])
    again = _pull_all(client, held.queue, len(held.contents))
    _must_be(held, [bytes(message.content) for message in again], "after the node's own confirmations")
    if not all(client.done_many(held.queue, [message.id for message in again])):
        raise BrokenPromiseError(f"messages of {held.queue} could not be acked by their only holder")


def _pull_all(client: Client, queue: str, count: int) -> list[SyncMessage]:
    """Pull until `count` messages have arrived."""
    deadline_s = time.monotonic() + _RETURN_S
    taken: list[SyncMessage] = []
    while len(taken) < count and (left_s := deadline_s - time.monotonic()) > 0:
        taken += client.pull_many(queue, count - len(taken), min(5.0, left_s), lease=_LEASE_S)
    return taken


def _queue(name: str) -> str:
    # Names in Kestrel's protocols have no dot.
    return f"drill-open-{name}"


def _addresses(stage: Stage) -> list[str]:
    return [f"127.0.0.1:{node.ports.rpc}" for node in stage.cluster.nodes]


def _others(stage: Stage, node: NodeProcess) -> list[str]:
    return [f"127.0.0.1:{one.ports.rpc}" for one in stage.cluster.nodes if one is not node]
