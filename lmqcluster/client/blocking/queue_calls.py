"""Calls of the blocking client on whole queues and on the cluster."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, TypeVar

from ..aio.queue_calls import QueueCalls
from ..transport.requests import Name

__all__ = ["SyncQueueCalls"]

T = TypeVar("T")


class SyncQueueCalls(ABC):
    """The calls of `QueueCalls`, each of which waits for its result."""

    _client: QueueCalls

    @abstractmethod
    def _run(self, call: Callable[[], Awaitable[T]]) -> T:
        """Run the call on the client's loop and wait for its result."""

    def delete(self, queue: Name) -> str:
        """Delete a queue with all its messages, see `AsyncClient.delete`."""
        return self._run(lambda: self._client.delete(queue))

    def purge(self, queue: Name) -> int:
        """Remove all messages of a queue that are not leased and return their number, see `AsyncClient.purge`."""
        return self._run(lambda: self._client.purge(queue))

    def move(self, queue: Name, to: Name, max: int | None = None) -> int:  # noqa: A002
        """Move messages to the end of another queue and return their number, see `AsyncClient.move`."""
        return self._run(lambda: self._client.move(queue, to, max))

    def withdraw(self, queue: Name, label: Name, max: int | None = None) -> int:  # noqa: A002
        """Remove messages with a label that are not leased and return their number, see `AsyncClient.withdraw`."""
        return self._run(lambda: self._client.withdraw(queue, label, max))

    def count_labelled(self, queue: Name, label: Name) -> int:
        """Count the messages with a label that are not leased, see `AsyncClient.count_labelled`."""
        return self._run(lambda: self._client.count_labelled(queue, label))

    def redrive(
        self,
        queue: Name,
        *,
        to: Name | None = None,
        label: Name | None = None,
        max: int | None = None,  # noqa: A002
    ) -> int:
        """Send dead letters and the like back and return their number, see `AsyncClient.redrive`."""
        return self._run(lambda: self._client.redrive(queue, to=to, label=label, max=max))

    def bind(self, source: Name, target: Name) -> bool:
        """Store a copy of each message pushed to one queue in another, see `AsyncClient.bind`."""
        return self._run(lambda: self._client.bind(source, target))

    def unbind(self, source: Name, target: Name) -> bool:
        """Remove a binding, see `AsyncClient.unbind`."""
        return self._run(lambda: self._client.unbind(source, target))

    def bindings(self, source: Name) -> list[str]:
        """List the queues that receive copies of messages pushed to this one, see `AsyncClient.bindings`."""
        return self._run(lambda: self._client.bindings(source))

    def suspend(self, queue: Name) -> str:
        """Stop deliveries from a queue until `resume`, see `AsyncClient.suspend`."""
        return self._run(lambda: self._client.suspend(queue))

    def resume(self, queue: Name) -> str:
        """Resume deliveries from a suspended queue, see `AsyncClient.resume`."""
        return self._run(lambda: self._client.resume(queue))

    def update_props(self, queue: Name, props: Mapping[str, Any] | None = None, *, only_unset: bool = False) -> str:
        """Set some of a queue's properties, or clear all that were set on it, see `AsyncClient.update_props`."""
        return self._run(lambda: self._client.update_props(queue, props, only_unset=only_unset))

    def set_default_props(self, rules: Iterable[tuple[str, Mapping[str, Any]]]) -> str:
        """Replace the list of default properties, see `AsyncClient.set_default_props`."""
        return self._run(lambda: self._client.set_default_props(rules))

    def get_default_props(self) -> list[tuple[str, dict[str, Any]]]:
        """Return the list of default properties, see `AsyncClient.get_default_props`."""
        return self._run(self._client.get_default_props)

    def cluster(self) -> dict[str, Any]:
        """Return the node's view of the cluster, see `AsyncClient.cluster`."""
        return self._run(self._client.cluster)

    def ping(self) -> str:
        """Ping the cluster and return ``"pong"`` from any node that answers."""
        return self._run(self._client.ping)
