"""The node of an in-memory cluster: the parts of a real node above the log.

Batches go directly to the state machine instead of through Raft. Everything else that a client can observe is real: the
state machine, waiting pulls, patterns, limits and the protocol are those of `lmq start`.
"""

from __future__ import annotations

import asyncio
import os
import socket
import weakref
from functools import partial
from types import SimpleNamespace
from typing import Any, Final

import msgpack

from lmqcluster.core import Machine, State
from lmqcluster.core.log.commands import Barrier, Command, SetSalt, Upgrade
from lmqcluster.node.access.access import Access, time_of_day_us
from lmqcluster.node.commit.proposer import PendingCommand, Proposer
from lmqcluster.node.config.config import NodeConfig
from lmqcluster.node.gates import Gates
from lmqcluster.node.process.fair_slices import FairSlices
from lmqcluster.node.queues.patterns.patterns import compile_pattern
from lmqcluster.node.queues.patterns.views import PatternViews
from lmqcluster.node.queues.pulls.pulls import Pulls
from lmqcluster.node.queues.service import QueueService
from lmqcluster.protocols.msgpack_rpc import RpcPort
from lmqcluster.wire.errors import LmqError

from .clock import MovableClock, MovableLoop

__all__ = ["MemoryNode"]

SALT_BYTES: Final = 10
TURNS: Final = 8
"""Turns of the loop without a batch after which all consequences of earlier batches have been proposed."""
_LOOPBACK: Final = ("127.0.0.1", 0)


class MemoryNode:
    """A node without a log. All methods must be called on its event loop.

    Attributes:
        address: the address that clients connect to.
        access, config, front_ends, gates, membership, observed, service, tls: the parts of a node that the front end uses.
    """

    def __init__(self, loop: MovableLoop) -> None:
        self.address = ""
        self.config = NodeConfig(name="in-memory")
        self.access = Access(None)
        self.gates = Gates(self.config, lambda _address: self.access.anonymous is None)
        self.membership = SimpleNamespace(on_leave=[])
        self.observed = SimpleNamespace(connections={})
        self.tls = None
        self.front_ends = None
        self._loop = loop
        self._clock = MovableClock(loop)
        self._machine = Machine(compile_pattern)
        self._opening: set[asyncio.Task[None]] = set()
        self._transports: weakref.WeakSet[asyncio.WriteTransport] = weakref.WeakSet()
        self._closed = False
        # The commands that the first leader of a cluster proposes.
        salt = os.urandom(SALT_BYTES)
        founding = [SetSalt(salt).encode(), Upgrade(State.VERSION_MAX).encode()]
        self._machine.apply(self._clock.now_us(), b"founder", 1, 1, founding)
        self.views = PatternViews(self._get_state, FairSlices())
        self._proposer = Proposer(self, b"in-memory", 1)
        self.service = QueueService(
            self._proposer,
            Pulls(self._proposer, self._get_state, self._clock, self.views),
            self._get_state,
            self.views,
            FairSlices(),
            message_bytes_max=self.config.message_bytes_max,
            attribute_bytes_max=self.config.attribute_bytes_max,
            memory_bytes_max=self.config.memory_bytes_max,
        )
        self.service.founded(salt)
        self.access.follow(self._machine.state.tokens, self._machine.state.api_keys, time_of_day_us())
        self._port = RpcPort(self, _LOOPBACK[0], _LOOPBACK[1])
        self._timer: asyncio.TimerHandle | None = None

    def _get_state(self) -> State:
        return self._machine.state

    def cluster_status(self) -> dict[str, Any]:
        """Return the parts of `Node.cluster_status` that MessagePack-RPC shows."""
        return {"self": "in-memory", "leader": "in-memory", "nodes": [{"rpc": self.address}]}

    # --- connections ----------------------------------------------------------------------------------------------

    def accept(self, connected: socket.socket) -> None:
        """Serve a client at the other end of a socket."""
        if self._closed:
            connected.close()
            return
        task = self._loop.create_task(self._open(connected))
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)

    async def _open(self, connected: socket.socket) -> None:
        place = self._port.gate.enter(_LOOPBACK)
        if place is None:
            connected.close()
            return
        connected.setblocking(False)
        transport, _protocol = await self._loop.connect_accepted_socket(partial(self._port.connect, place), connected)
        place.set_abort(transport.abort)
        self._transports.add(transport)

    # --- the log --------------------------------------------------------------------------------------------------

    def has_leader(self) -> bool:
        """Return True: the only node always leads (`Carrier`)."""
        return True

    def copies_of(self, command: Command) -> int:
        """Return the copies that a command makes (`Carrier`)."""
        return self._machine.copies_of(command)

    def submit(self, _sequence: int, batch: bytes) -> bool:
        """Apply a batch after this turn of the loop, as a real node does (`Carrier`)."""
        self._loop.call_soon(self._apply, batch)
        return True

    def _apply(self, batch: bytes) -> None:
        if self._closed:
            return
        origin, incarnation, sequence, commands = msgpack.unpackb(batch, strict_map_key=False)
        applied = self._machine.apply(self._clock.now_us(), origin, incarnation, sequence, commands)
        self.views.applied(applied)
        self._proposer.applied(sequence, applied)
        if applied.ready:
            self.service.pulls.notice(applied.ready)
        if applied.notices:
            self.service.board.applied(applied.notices)
        self._watch_expiry()

    # --- time -----------------------------------------------------------------------------------------------------

    def _watch_expiry(self) -> None:
        """Restart the timer for the next lease, key or other expiry."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(max(0.0, self._due_in_s()), self._apply_expiry)

    def _due_in_s(self) -> float:
        return (self._machine.state.expiry.next_us - self._clock.now_us()) / 1e6

    def _apply_expiry(self) -> None:
        if self._due_in_s() > 0:
            self._watch_expiry()
        else:
            self._proposer.add_first(PendingCommand(Barrier(), [], _IgnoredResult()))

    async def advance(self, seconds: float) -> None:
        """Advance time, and run everything that happens in that time, in order."""
        while True:
            step_s = max(0.0, self._due_in_s())
            if step_s >= seconds:
                break
            self._loop.move(step_s)
            seconds -= step_s
            await self._settle()
        self._loop.move(seconds)
        await self._settle()

    async def _settle(self) -> None:
        """Run timers that are due, then expirations of the state machine, then the consequences of both."""
        await self._idle()
        self._apply_expiry()
        await self._idle()

    async def _idle(self) -> None:
        quiet = 0
        while quiet < TURNS:
            await asyncio.sleep(0)
            quiet = 0 if self._proposer.pending() else quiet + 1

    # --- the end --------------------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Refuse unanswered requests and close the connections."""
        error = LmqError("shutting_down", "the cluster in memory was closed")
        self.service.pulls.close(error)
        await self._idle()
        self._proposer.close(error)
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        self.views.close()
        await asyncio.gather(*self._opening)
        await self._port.stop(0)
        for transport in self._transports:
            # Data that its client has not read is dropped.
            transport.abort()
        while self.observed.connections["msgpack_rpc"]():
            await self._idle()
        self.gates.close()


class _IgnoredResult:
    """Ignores the results of the node's own commands (`Sink`)."""

    def completed(self, _group: PendingCommand, _result: object) -> None:
        """Ignore the result of a barrier."""

    def failed(self, _group: PendingCommand, _error: LmqError) -> None:
        """Ignore that the node is closed."""
