"""Connection state of a client, shared by all queues that use it."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable

from lmqcluster.wire.errors import LmqError, Outcome

from ..aio.client import AsyncClient
from .shared.options import ConnectionState

__all__ = ["ConnectionStates"]

Listener = Callable[[ConnectionState], None]
_PAUSE_S = 0.1
_known: weakref.WeakKeyDictionary[AsyncClient, ConnectionStates] = weakref.WeakKeyDictionary()


class ConnectionStates:
    """Monitor of one client's connection while there are listeners; see `of`. Bound to the client's event loop."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = weakref.ref(client)
        self._leases: dict[Listener, float] = {}
        self._connected = True
        self._probe: asyncio.Task[None] | None = None
        self._loss: asyncio.TimerHandle | None = None

    @classmethod
    def of(cls, client: AsyncClient) -> ConnectionStates:
        """Return the monitor of a client."""
        found = _known.get(client)
        if found is None:
            found = _known[client] = cls(client)
        return found

    def listen(self, listener: Listener, lease_s: float) -> None:
        """Add a listener, which is called on every change. Its leases last `lease_s` seconds."""
        client = self._client()
        if client is not None and not self._leases:
            client._session.watchers.append(self._changed)
        self._leases[listener] = lease_s

    def leave(self, listener: Listener) -> None:
        """Remove a listener."""
        self._leases.pop(listener, None)
        client = self._client()
        if not self._leases and client is not None and self._changed in client._session.watchers:
            client._session.watchers.remove(self._changed)
            self._stand()

    def _stand(self) -> None:
        for waiting in (self._probe, self._loss):
            if waiting is not None:
                waiting.cancel()
        self._probe = self._loss = None

    def _changed(self, connected: bool) -> None:
        self._connected = connected
        if not connected and self._probe is None:
            loop = asyncio.get_running_loop()
            self._loss = loop.call_later(max(self._leases.values()), self._tell, ConnectionState.LOST)
            self._probe = loop.create_task(self._reconnect())
            self._tell(ConnectionState.SUSPENDED)

    def _tell(self, state: ConnectionState) -> None:
        for listener in tuple(self._leases):
            listener(state)

    async def _reconnect(self) -> None:
        """Wait until the cluster serves the client again, and report it."""
        while (client := self._client()) is not None:
            try:
                await client.renew_session("")  # Needs a leader and is a no-op.
            except LmqError as error:
                # An outage that outlasts a call is already reported as the state.
                answered = not (error.retryable or error.outcome is Outcome.UNKNOWN)
            else:
                answered = True
            if answered and self._connected:
                break
            await asyncio.sleep(_PAUSE_S)
        if self._loss is not None:
            self._loss.cancel()
        self._probe = self._loss = None
        self._tell(ConnectionState.RECONNECTED)
