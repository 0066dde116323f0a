"""The fast path of a blocking client: sequential calls bypass the event loop.

Passing a call to another thread and its answer back costs more than the rest of the client's work for it. So if no other thread
is calling, a thread sends its request itself over a second connection and waits for the answer there.

If a call fails, a `FailoverConnection` takes it over: as a new call if it certainly had no effect, as a repetition if it is in
doubt. A push in doubt has a number of this connection's producer, so a separate session retries it for that producer; the next
connection has a new producer.
"""

from __future__ import annotations

import asyncio
import copy
import math
import os
import threading
import time
from collections.abc import Coroutine
from typing import Any, TypeVar

from lmqcluster.wire.errors import LmqError

from ..aio.client import AsyncClient
from ..message import logger
from ..transport.calls import Call, NonRepeatableCall, OptionPull, Pull, Push, Settlement
from ..transport.connection import NONSENSE
from ..transport.failover import FailoverConnection, closed_error
from ..transport.replies import RETRY_ELSEWHERE, parse_error
from .blocking_connection import BROKEN, BlockingConnection

__all__ = ["FastPath", "HandedOver", "driven"]

T = TypeVar("T")

_FIRST_CALLS = 4
"""Number of first calls that go over the event loop: a program that makes only a few needs no second connection."""
_PAUSE_S = 1.0
"""Time in seconds for which calls go over the event loop after a failure."""
_CANCEL_S = 1.0
"""Time in seconds to wait for the answer to a pull whose caller was interrupted."""


class HandedOver(Exception):  # noqa: N818 - not an error
    """Raised if a pull continues in the client's session."""

    def __init__(self, call: Pull) -> None:
        super().__init__()
        self.call = call


class FastPath:
    """The fast path of one blocking client, see the module.

    Attributes:
        client: makes calls on the fast path. Use it only between `enter` and `leave`.
    """

    def __init__(self, client: AsyncClient, loop: asyncio.AbstractEventLoop, loop_thread: int | None) -> None:
        """Prepare the fast path without connecting.

        Args:
            client: the client that makes the calls.
            loop: the event loop of that client.
            loop_thread: the loop's thread, which must not block here.
        """
        self._pid = os.getpid()  # A forked process inherits the socket and must not use it.
        self._loop_thread = loop_thread
        self.client = copy.copy(client)
        self.client._calls = client._calls.over(self, loop)
        self._loop = loop
        self._session = client._session
        self._turn = threading.Lock()
        self._line: BlockingConnection | None = None
        self._token: bytes | None = None
        self._producer = b""
        self._sequence = 1
        self._calls = 0
        # The end of a span must not race with the event loop.
        self._not_before = 0.0 if client._tracer is None else math.inf
        self._closed = False
        self._waiting: Pull | None = None
        self._going_on: set[asyncio.Task[None]] = set()  # pushes in doubt

    def enter(self) -> bool:
        """Return whether the caller may use `client`, until it calls `leave`."""
        if threading.get_ident() == self._loop_thread or os.getpid() != self._pid:
            return False
        if not self._turn.acquire(blocking=False):
            return False
        try:
            ready = self._is_ready()
        except BaseException:
            self._turn.release()
            raise
        if not ready:
            self._turn.release()
        return ready

    def leave(self) -> None:
        """Release the fast path for other threads."""
        self._turn.release()

    def _is_ready(self) -> bool:
        address, line = self._session.address, self._line
        if line is not None:
            if line.address == address and not self._closed:
                return True
            self.drop()
        if address is None or self._closed:
            return False
        self._calls += 1
        if self._calls <= _FIRST_CALLS or time.monotonic() < self._not_before:
            return False
        return self._connect()

    def _connect(self) -> bool:
        """Connect to the node that the session uses."""
        settings, address = self._session.settings, self._session.address
        credentials = settings.credentials
        if address is None:
            return False
        deadline = time.monotonic() + settings.connect_timeout_s
        try:
            # The kernel accepts connections for a stalled process too, so only an answer proves that the node is alive.
            self._line = line = BlockingConnection.open(
                address, silence_s=settings.connect_timeout_s, tls=credentials.tls()
            )
            self._token = credentials.token
            if self._token is not None:
                line.ask(b"auth", [self._token], deadline)
            self._producer, self._sequence = os.urandom(16), 1
            line.ask(b"producer", [self._producer, self._sequence], deadline)
            line.settimeout(settings.heartbeat_s)
        except (LmqError, *BROKEN) as error:
            # If the failure lasts, the session reports it.
            logger.debug("no second connection to %s: %s", address, error)
            self.drop()
            return False
        except BaseException:
            self.drop()
            raise
        return True

    def drop(self) -> None:
        """Disconnect and pause the fast path."""
        line, self._line = self._line, None
        if line is not None:
            line.close()
        self._not_before = time.monotonic() + _PAUSE_S

    # --- calls (`Sender`) -----------------------------------------------------------------------------------------

    def submit_push(self, call: Push) -> None:
        """Send a push and wait for its answer."""
        try:
            call.sequence = self._sequence
            self._sequence += call.count
            self.submit(call)
        except BaseException:
            # The node counts pushes too, and may or may not have received this one.
            self.drop()
            raise

    def submit(self, call: Call) -> None:
        """Send any other call and wait for its answer.

        Raises:
            HandedOver: the call is a pull that continues in the session. Other calls that continue there have no result yet.
        """
        line = self._line
        if line is None or _is_risky(call):
            self._hand_over(call)
            return
        self._waiting = call if isinstance(call, Pull) else None
        try:
            error, result = line.request(call.body, call.deadline)
        except BROKEN as broken:
            self.drop()
            self._lost(call, f"{line.address}: {broken}")
            return
        except BaseException:
            self._interrupted(line, call)
            raise
        if error is not None:
            self._refused(call, parse_error(error))
            return
        try:
            value = call.decode(result)
            if self._closed and isinstance(call, Pull):
                if call.gives_back:
                    self._loop.call_soon_threadsafe(self._session.settings.late, value)
                raise closed_error()
            call.future.set_result(value)
        except LmqError as refusal:
            call.fail(refusal)
        except NONSENSE:
            call.fail(LmqError("internal", f"the node's answer makes no sense: {result!r:.200}"))

    def enqueue(self, call: Call) -> None:
        """Send a large call over the event loop."""
        self._hand_over(call)

    def _refused(self, call: Call, error: LmqError) -> None:
        renewed = error.code == "unauthorized" and self._session.settings.credentials.renew(self._token)
        if renewed or error.code in RETRY_ELSEWHERE:
            self.drop()
            if isinstance(call, Push):
                call.sequence = 0
            self._hand_over(call)
        elif error.code == "unknown_outcome":
            # The node does not know the outcome, as if the connection had been lost.
            self.drop()
            self._lost(call, error.message)
        else:
            call.refused(error)

    def _lost(self, call: Call, reason: str) -> None:
        if not call.lost(reason):
            return
        if self._closed:
            text = f"the client was closed before the answer came: {reason}"
            call.fail(closed_error() if isinstance(call, Pull) else LmqError("unknown_outcome", text))
        elif isinstance(call, Push):
            self._loop.call_soon_threadsafe(self._resume, call, self._producer)
        else:
            self._hand_over(call)

    def _hand_over(self, call: Call) -> None:
        self._loop.call_soon_threadsafe(self._session.enqueue, call)
        if isinstance(call, Pull):
            raise HandedOver(call)

    # --- pushes in doubt, on the event loop -------------------------------------------------------------------------

    def _resume(self, call: Push, producer: bytes) -> None:
        task = self._loop.create_task(self._go_on(call, producer))
        self._going_on.add(task)
        task.add_done_callback(self._going_on.discard)

    async def _go_on(self, call: Push, producer: bytes) -> None:
        """Retry a push under its sequence number."""
        session = FailoverConnection(self._session.settings, producer, call.sequence)
        session.enqueue(call)
        try:
            await asyncio.wait([call.future])
        finally:
            await session.close(0)

    async def finish(self, grace_s: float) -> None:
        """Wait up to `grace_s` seconds for pushes in doubt; then their outcomes stay unknown."""
        if self._going_on:
            await asyncio.wait(self._going_on, timeout=grace_s)
        tasks = tuple(self._going_on)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    # --- interruptions and the end ----------------------------------------------------------------------------------

    def _interrupted(self, line: BlockingConnection, call: Call) -> None:
        """Clean up after an exception from outside, such as KeyboardInterrupt, has ended the wait for an answer."""
        self._line = None
        if isinstance(call, Pull):
            threading.Thread(target=self._give_back, args=(line, call), name="lmqcluster-pull", daemon=True).start()
        else:
            line.close()
        if isinstance(call, Settlement):
            self._loop.call_soon_threadsafe(self._go_on_alone, call)

    def _go_on_alone(self, call: Settlement) -> None:
        """Continue a settlement whose caller was interrupted."""
        if call.lost("its caller was interrupted") and call.future.cancel():
            self._session.enqueue(call)

    def _give_back(self, line: BlockingConnection, call: Pull) -> None:
        """Cancel a pull at the node and return a message that it has already sent."""
        try:
            line.settimeout(_CANCEL_S)
            error, result = line.cancel(time.monotonic())
            if error is None and call.gives_back:
                self._loop.call_soon_threadsafe(self._session.settings.late, call.decode(result))
        except (LmqError, RuntimeError, *BROKEN, *NONSENSE) as problem:
            logger.warning("what was sent to an interrupted pull comes again when its lease has ended: %s", problem)
        finally:
            line.close()

    def close(self, grace_s: float) -> None:
        """Reject new calls, cancel a waiting pull, and wait up to `grace_s` seconds for the call of another thread."""
        self._closed = True
        line = self._line
        if line is not None and self._waiting is not None:
            line.forget()
        if self._turn.acquire(timeout=max(grace_s, 0)):
            self.drop()
            self._turn.release()
        elif line is not None:
            line.wake()


def _is_risky(call: Call) -> bool:
    """Return whether a call cannot be retried.

    The event loop detects a closed connection immediately. On the fast path only the next call does, and cannot determine whether
    it was executed.
    """
    return isinstance(call, NonRepeatableCall) or (isinstance(call, OptionPull) and call.settles)


def driven(call: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine that never waits, because its calls are sent directly."""
    try:
        call.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    raise RuntimeError("a call that was sent directly waits for something")
