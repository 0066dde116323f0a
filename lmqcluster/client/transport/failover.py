"""Failover of calls to another node.

A session holds one connection at a time. While it is open, calls go directly onto it. If it is lost, or if the node reports that
it cannot serve (no leader, shutting down, overloaded), the session connects to the next address. It then repeats every unanswered
call that may be retried, in the order in which they were first sent.

Exactly-once pushes: the session is a *producer* with a random id. Each content of a push without key takes the next sequence
number when it is first sent. The cluster stores only numbers above the last stored one. So:

* a push in doubt is sent again under its old number, before anything with a higher one;
* a push that was certainly not applied takes a new number, because a higher one may have been stored since;
* a gap in the numbers (after a failed call) is announced with ``producer``, as soon as all earlier pushes are answered.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import socket
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from lmqcluster.net.loop import connect
from lmqcluster.net.resolver import RESOLVER
from lmqcluster.wire.errors import LmqError, Outcome

from .addresses import NodeAddress
from .calls import Call, Control, Pull, Push
from .connection import Connection
from .denial import denial
from .in_memory import IN_MEMORY
from .in_memory import connect as connect_in_memory
from .kept_settlements import KeptSettlements
from .replies import RETRY_ELSEWHERE, parse_error
from .session_settings import SessionSettings
from .tls import explain

__all__ = ["FailoverConnection", "closed_error"]

_SWEEP_S = 0.25
_DRAIN_SWEEPS = 2
"""Number of sweeps for which a node that rejects calls may still answer earlier ones."""
_SHUTDOWN_SWEEPS = 20
"""The same for a node that shuts down or leaves: it answers accepted calls and then closes the connection itself."""
_GOING = frozenset({"shutting_down", "left_cluster"})
_CANCEL_S = 1.0
"""Time in seconds for which a closing client waits for the answers to cancelled pulls."""
ASK_S = 30.0
"""Interval in seconds at which a client asks for the addresses of the nodes."""
_TURN_BYTES = 1024 * 1024
"""Approximate maximum of the backlog that is written in one turn of the event loop."""


class FailoverConnection:
    """A session that fails over between nodes, see the module. Bound to the event loop of its first call; not thread-safe."""

    def __init__(self, settings: SessionSettings, producer: bytes | None = None, sequence: int = 1) -> None:
        """Prepare the session, which connects on its first call.

        Args:
            settings: limits and the like.
            producer: id of the producer; default: a random one.
            sequence: number of the producer's next push.
        """
        self.settings = settings
        self.timeout_s = settings.timeout_s
        self._nodes = settings.nodes
        self._credentials = settings.credentials
        self._connect_timeout_s = settings.connect_timeout_s
        self._sweep_s = min(_SWEEP_S, settings.timeout_s / 4, settings.heartbeat_s)
        self._silent_sweeps_max = math.ceil(settings.heartbeat_s / self._sweep_s)
        self._in_flight_max = self._in_flight_limit = settings.in_flight_max
        self._backlog_max = settings.backlog_max
        self._backlog_bytes_max = settings.backlog_bytes_max
        self._backoff = settings.backoff
        self._late = settings.late
        self.kept = KeptSettlements(settings.timeout_s)
        self._denied_by: set[NodeAddress] = set()  # since the last successful connection

        self._producer = producer or os.urandom(16)
        self._sequence = sequence  # of the next new push
        self._backlog: deque[Call] = deque()
        self._backlog_bytes = 0
        self._live: Connection | None = None  # while calls bypass the backlog
        self._connection: Connection | None = None
        self._refused: list[Call] = []
        self._drain_sweeps = 0  # above 0 while draining
        self._next_address = self._nodes.after(None)
        self._asker: asyncio.TimerHandle | None = None
        self._failures = 0
        self._trouble = LmqError("unreachable", "no connection was tried yet")
        self._connector: asyncio.Task[None] | None = None
        self._sweeper: asyncio.TimerHandle | None = None
        self._progress: asyncio.Event | None = None  # while closing
        self._loop: asyncio.AbstractEventLoop | None = None
        self.watchers: list[Callable[[bool], None]] = []
        """Callbacks for connects (True) and disconnects (False), called on the event loop; they must not raise."""

    # --- calls ----------------------------------------------------------------------------------------------------

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop of the session; the first access binds the session to the running one.

        Raises:
            RuntimeError: no event loop is running.
        """
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        return self._loop

    @property
    def address(self) -> NodeAddress | None:
        """Address of the node that the session is connected to; None without a connection."""
        connection = self._connection  # Other threads read it too.
        return None if connection is None else connection.address

    def submit_push(self, call: Push) -> None:
        """Send a push immediately if possible, otherwise as soon as possible."""
        connection = self._live
        if connection is None or len(connection.pending) >= self._in_flight_limit:
            self.enqueue(call)
            return
        call.sequence = sequence = self._sequence
        self._sequence = sequence + call.count
        connection.send(call)
        if self._sweeper is None:
            self._start_sweeper()

    def submit(self, call: Call) -> None:
        """Send any other call immediately if possible, otherwise as soon as possible."""
        connection = self._live
        if connection is None or len(connection.pending) >= self._in_flight_limit:
            self.enqueue(call)
            return
        connection.send(call)
        if self._sweeper is None:
            self._start_sweeper()

    def enqueue(self, call: Call, *, internal: bool = False) -> None:
        """Append a call to the backlog. Large calls always take this path, because the backlog limits bytes.

        Args:
            call: the call; if a limit is exceeded, it fails immediately.
            internal: whether the client itself makes the call, which it may also do while closing.
        """
        if self._progress is not None and not internal:
            call.fail(closed_error())
            return
        if len(self._backlog) >= self._backlog_max or (
            self._backlog and self._backlog_bytes + len(call.body) > self._backlog_bytes_max
        ):
            call.fail(
                LmqError(
                    "overloaded", f"{len(self._backlog)} calls wait to be sent; await earlier ones before making more"
                )
            )
            return
        call.parked(self.loop.time(), self.timeout_s)
        self._backlog.append(call)
        self._backlog_bytes += len(call.body)
        if self._sweeper is None:
            self._start_sweeper()
        if self._connection is None:
            self._start_connector()
        elif len(self._backlog) == 1:  # A longer backlog already waits for room.
            self._leave_straight_path()
            self._pump()

    def forget(self, call: Call) -> None:
        """Cancel a pull at the node after its caller was cancelled."""
        connection = self._connection
        if connection is not None:
            connection.cancel(call)

    # --- the direct path and the backlog --------------------------------------------------------------------------

    def _leave_straight_path(self) -> None:
        if self._live is not None:
            self._live.next_sequence = self._sequence
            self._live = None

    def _pump(self) -> None:
        """Send the backlog as far as the limits allow; if it is empty, open the direct path."""
        connection = self._connection
        if connection is None or self._drain_sweeps or self._live is not None:
            return
        backlog = self._backlog
        now = self.loop.time()
        budget = _TURN_BYTES
        while backlog and not connection.paused and self._has_room(connection):
            if budget < 0:
                self.loop.call_soon(self._pump)
                return
            call = backlog[0]
            size = len(call.body)
            if not self._is_over(call):
                if isinstance(call, Push) and not self._number(connection, call):
                    return
                call.renew(now)
                connection.send(call)
                budget -= size
            self._backlog_bytes -= size
            backlog.popleft()
        if (
            not backlog
            and not connection.paused
            and self._progress is None
            and self._skip_to(connection, self._sequence)
        ):
            self._live = connection

    def _has_room(self, connection: Connection) -> bool:
        if len(connection.pending) < self._in_flight_limit:
            return True
        # Pulls that wait at the node must not block acks and pushes.
        waiting = sum(call.waits for call in connection.pending.values())
        self._in_flight_limit = self._in_flight_max + waiting
        return len(connection.pending) < self._in_flight_limit

    def _number(self, connection: Connection, push: Push) -> bool:
        """Assign the sequence number of the push. Return False if the push cannot be sent yet."""
        sequence = push.sequence or self._sequence
        if not self._skip_to(connection, sequence):
            return False
        if push.sequence == 0:
            push.sequence = sequence
            self._sequence += push.count
        connection.next_sequence = sequence + push.count
        return True

    def _skip_to(self, connection: Connection, sequence: int) -> bool:
        """Make `sequence` the number of the next push. Return False if that has to wait.

        A node that refuses a push also refuses all later ones, until the next ``producer``. So the session sends ``producer``
        only if no push is unanswered: otherwise a later push could be stored before one that was refused.
        """
        if sequence == connection.next_sequence:
            return True
        if any(isinstance(call, Push) for call in connection.pending.values()):
            return False
        connection.bind(self._producer, sequence)
        return True

    # --- events of the connection ---------------------------------------------------------------------------------

    def received(self, connection: Connection) -> None:
        """Send more of the backlog after replies, or end the connection if it is drained."""
        if self._live is None and connection is self._connection:
            if self._drain_sweeps:
                self._end_if_drained(connection)
            else:
                self._pump()
            self._note_progress()

    def write_paused(self, connection: Connection) -> None:
        """Collect calls in the backlog, whose size is limited, because the node reads too slowly."""
        if connection is self._connection:
            self._leave_straight_path()

    def answered_late(self, call: Call, value: Any) -> None:
        """Return messages that were pulled for a cancelled caller."""
        if call.gives_back:
            self._late(value)

    def answered_moved(self, call: Call) -> None:
        """Send a pull that waited at a draining node to the next one."""
        if not call.future.done():
            self._refused.append(call)

    def answered_error(self, connection: Connection, call: Call, element: Any) -> None:
        """Fail the call or retry it, depending on the error."""
        error = parse_error(element)
        if isinstance(call, Control):
            call.fail(error)
        elif error.code in RETRY_ELSEWHERE or (_is_unauthorized(error) and self._credentials.renew(connection.token)):
            self._refused.append(call)
            self._drain(connection, error)
        elif error.code == "unknown_outcome":
            # The node does not know the outcome, as if the connection had been lost.
            if call.lost(error.message) or not self._is_over(call):
                self._refused.append(call)
            self._drain(connection, error)
        else:
            call.refused(error)

    def connection_lost(self, connection: Connection, reason: str) -> None:
        """Select the unanswered calls to retry, fail the others, and connect to the next node."""
        again = [call for call in connection.pending.values() if call.lost(reason) or not self._is_over(call)]
        if connection is not self._connection:
            return  # `_try` handles the loss of a connection that is not in use yet.
        if self._drain_sweeps == 0:
            self._trouble = LmqError("unreachable", f"{connection.address}: {reason}")
        self._leave_straight_path()
        self._connection = None
        self._tell_watchers()
        self._drain_sweeps = 0
        self._step(stood_s=self.loop.time() - connection.since)
        again += [call for call in self._refused if call.doubt]
        fresh = [call for call in self._refused if not call.doubt]
        self._refused = []
        again.sort(key=_serial)
        fresh.sort(key=_serial)
        for call in fresh:
            if isinstance(call, Push):
                call.sequence = 0
        self._return_to_backlog(again + fresh)
        if self._backlog:
            self._start_connector()
        self._note_progress()

    def _return_to_backlog(self, calls: list[Call]) -> None:
        now = self.loop.time()
        for call in reversed(calls):
            call.parked(now, self.timeout_s)
            self._backlog.appendleft(call)
            self._backlog_bytes += len(call.body)

    # --- draining -------------------------------------------------------------------------------------------------

    def _drain(self, connection: Connection, error: LmqError) -> None:
        """Drain a node that rejects calls: wait for its answers to accepted calls, then connect to the next node.

        The session cancels waiting pulls first. If it closed the connection at once, messages in flight to them would be lost
        until their leases expire.
        """
        self._trouble = error
        if connection is self._connection and self._drain_sweeps == 0:
            self._leave_straight_path()
            self._drain_sweeps = _SHUTDOWN_SWEEPS if error.code in _GOING else _DRAIN_SWEEPS
            for call in connection.pending.values():
                if isinstance(call, Pull):
                    call.move()
                    connection.cancel(call)

    def _end_if_drained(self, connection: Connection) -> None:
        if all(isinstance(call, Control) for call in connection.pending.values()):
            connection.abort(f"the node turns calls away: {self._trouble}")

    # --- connecting -----------------------------------------------------------------------------------------------

    def _start_connector(self) -> None:
        if self._connector is None:
            self._connector = self.loop.create_task(self._connect(), name="lmqcluster-connect")

    async def _connect(self) -> None:
        """Try one address after the other until one answers or the backlog is empty."""
        for host in {address.host for address in self._nodes.all} - {IN_MEMORY}:
            # A failover must not wait for the DNS lookup of the next node.
            RESOLVER.look_up(host)
        try:
            while self._backlog and self._connection is None:
                delay_s = self._backoff.delay_s(self._failures, len(self._nodes))
                if delay_s:
                    await asyncio.sleep(delay_s)
                await self._try(self._next_address)
        finally:
            self._connector = None
        self._pump()

    async def _try(self, address: NodeAddress) -> None:
        connection = Connection(self, self.loop, address)
        token = self._credentials.token
        try:
            reached = await self._reach(address)
            async with asyncio.timeout(self._connect_timeout_s):
                await self._open(connection, reached)
                if token is not None:
                    await connection.authenticate(token)
                # The kernel accepts connections for a stalled process too, so only an answer proves that the node is alive.
                await connection.bind(self._producer, self._sequence)
        except (LmqError, OSError) as exc:
            if isinstance(exc, TimeoutError):
                reason = str(exc) or f"no answer within {self._connect_timeout_s:g} s"
            else:
                reason = explain(exc) if isinstance(exc, OSError) else str(exc)
            connection.abort(reason)
            self._trouble = LmqError("unreachable", f"{address}: {reason}")
            if _is_unauthorized(exc) and self._credentials.renew(token):
                self._denied_by.clear()
            elif (refusal := await denial(address, exc, has_tls=self._credentials.has_tls)) is not None:
                self._denied(address, refusal)
            self._step(stood_s=0.0)
            return
        except BaseException:
            connection.abort("given up")
            raise
        self._denied_by.clear()
        if connection.is_open:
            self._connection = connection
            self._tell_watchers()
            self._ask_for_nodes(connection)
        else:
            self._step(stood_s=0.0)

    def _tell_watchers(self) -> None:
        for watcher in tuple(self.watchers):
            watcher(self._connection is not None)

    def _ask_for_nodes(self, connection: Connection) -> None:
        """Ask for the addresses of the nodes, now and every `ASK_S` seconds while the connection is open."""
        if self._asker is not None:
            self._asker.cancel()
            self._asker = None
        if connection is not self._connection or not self._nodes.discovers or self._progress is not None:
            return
        connection.ask_for_nodes(self._nodes.learn)
        self._asker = self.loop.call_later(ASK_S, self._ask_for_nodes, connection)
        if self._sweeper is None:
            self._start_sweeper()

    async def _reach(self, address: NodeAddress) -> socket.socket:
        if address.host == IN_MEMORY:
            return connect_in_memory(address)
        patience_s = self._connect_timeout_s
        attempt = self._failures // len(self._nodes)
        return await connect(*address, timeout_s=patience_s, lookup_s=patience_s, attempt=attempt)

    async def _open(self, connection: Connection, reached: socket.socket) -> None:
        host = connection.address.host
        if host == IN_MEMORY:
            await self.loop.create_unix_connection(lambda: connection, sock=reached)
        else:
            tls = self._credentials.tls()
            name = None if tls is None else host
            await self.loop.create_connection(lambda: connection, sock=reached, ssl=tls, server_hostname=name)

    def _denied(self, address: NodeAddress, reason: LmqError) -> None:
        """Note that a node refuses the client, is not trusted, or is not a node. If that is true of all, fail the backlog.

        Nodes that only the cluster has named do not count: they may have other names on the client's network.
        """
        self._trouble = reason
        self._denied_by.add(address)
        if not self._denied_by.issuperset(self._nodes.given):
            return
        self._denied_by.clear()
        for call in self._backlog:
            if call.doubt:
                text = f"no answer came, and it cannot be sent again: {self._trouble}"
                call.fail(LmqError("unknown_outcome", text))
            else:
                call.refused(self._trouble)
        self._backlog.clear()
        self._backlog_bytes = 0
        self._note_progress()

    def _step(self, *, stood_s: float) -> None:
        """Select the next address. A connection that lasted longer than the longest backoff resets the backoff."""
        if stood_s > self._backoff.max_s:
            self._failures = 0
        self._failures += 1
        self._next_address = self._nodes.after(self._next_address)

    # --- time -----------------------------------------------------------------------------------------------------

    def _start_sweeper(self) -> None:
        self._sweeper = self.loop.call_later(self._sweep_s, self._sweep)

    def _unanswered(self) -> Iterator[Call]:
        if self._connection is not None:
            yield from self._connection.pending.values()
        yield from self._refused
        yield from self._backlog

    def _sweep(self) -> None:
        """Check deadlines and the health of the connection; one timer serves all calls."""
        self._sweeper = None
        now = self.loop.time()
        connection = self._connection
        if connection is not None and connection.pending:
            late = [call for call in connection.pending.values() if call.deadline <= now]
            for call in late:
                self._expire(call, now, sent=True)
            if late:
                # Calls that hang at that node must not fill the table of pending calls.
                connection.abort(f"no answer to a call within {self.timeout_s:g} s")
            else:
                self._check_health(connection)
        for call in (*self._refused, *self._backlog):
            if call.deadline <= now:
                self._expire(call, now, sent=False)
        if any(call.future.done() for call in self._backlog):
            self._backlog = deque(call for call in self._backlog if not self._is_over(call))
            self._backlog_bytes = sum(len(call.body) for call in self._backlog)
        self._note_progress()
        if any(True for _ in self._unanswered()):
            self._start_sweeper()

    def _expire(self, call: Call, now: float, *, sent: bool) -> None:
        error = self._timed_out(call, sent=sent)
        if not self.kept.keep(call, now, error):
            call.fail(error)

    def _is_over(self, call: Call) -> bool:
        """Return whether neither the caller nor the client itself needs the answer to a call."""
        return call.future.done() and not (call.future.cancelled() and self.kept.keep(call, self.loop.time()))

    def _timed_out(self, call: Call, *, sent: bool) -> LmqError:
        if sent or call.doubt:
            return LmqError("unknown_outcome", f"no answer within {self.timeout_s:g} s (last trouble: {self._trouble})")
        code = self._trouble.code if self._trouble.outcome is Outcome.NOT_APPLIED else "unreachable"
        return LmqError(code, f"given up after {self.timeout_s:g} s: {self._trouble}")

    def _check_health(self, connection: Connection) -> None:
        connection.silent_sweeps += 1
        if self._drain_sweeps:
            self._drain_sweeps -= 1
            if self._drain_sweeps == 0:
                self._drain_sweeps = 1  # stays above 0 until the connection has ended
                connection.abort(f"the node turns calls away: {self._trouble}")
        elif connection.silent_sweeps == self._silent_sweeps_max:
            connection.ping()
        elif connection.silent_sweeps > 2 * self._silent_sweeps_max:
            connection.abort("the node does not answer a ping")

    # --- closing --------------------------------------------------------------------------------------------------

    def _note_progress(self) -> None:
        if self._progress is not None:
            self._progress.set()

    async def close(self, grace_s: float) -> None:
        """Reject new calls, cancel waiting pulls, wait for the other answers and end the connection.

        Args:
            grace_s: how long to wait for answers, in seconds; then the unanswered calls fail.
        """
        if self._progress is not None:
            return
        self._progress = asyncio.Event()
        self._leave_straight_path()
        try:
            async with asyncio.timeout(grace_s):
                await self._finish(self._progress)
        except TimeoutError:
            self._trouble = LmqError("unreachable", f"the client was closed; {self._trouble}")
        finally:
            await self._end()

    async def _finish(self, progress: asyncio.Event) -> None:
        for call in list(self._unanswered()):
            if call.waits:
                call.fail(closed_error())
                self.forget(call)
        while not all(call.waits or isinstance(call, Control) for call in self._unanswered()):
            await self._advance(progress)
        # The node answers cancelled pulls; messages that were in flight return to their queues.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CANCEL_S):
                while not all(isinstance(call, Control) for call in self._unanswered()):
                    await self._advance(progress)

    async def _advance(self, progress: asyncio.Event) -> None:
        progress.clear()
        self._pump()
        await progress.wait()

    async def _end(self) -> None:
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None
        if self._asker is not None:
            self._asker.cancel()
            self._asker = None
        if self._connector is not None:
            self._connector.cancel()
            await asyncio.wait([self._connector])
        self.kept.give_up_all()
        connection = self._connection
        pending = list(connection.pending.values()) if connection is not None else []
        for call in pending:
            call.fail(self._timed_out(call, sent=True))
        for call in (*self._refused, *self._backlog):
            call.fail(self._timed_out(call, sent=False))
        self._refused.clear()
        self._backlog.clear()
        if connection is not None:
            connection.close("the client was closed")
            await connection.lost


def closed_error() -> LmqError:
    """Return the error of a call to a closed client."""
    return LmqError("unreachable", "the client is closed", retryable=False)


def _is_unauthorized(error: Exception) -> bool:
    return isinstance(error, LmqError) and error.code == "unauthorized"


def _serial(call: Call) -> int:
    return call.serial
