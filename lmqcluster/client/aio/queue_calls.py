"""Calls of the asynchronous client on whole queues and on the cluster."""

from __future__ import annotations

from asyncio import Future
from collections.abc import Iterable, Mapping
from typing import Any

from ..transport.calls import Call, NonRepeatableCall
from ..transport.replies import decode_strings, name_text
from ..transport.requests import Name, name_bytes, request_body
from .call_base import CallBase, mapping, ok

__all__ = ["QueueCalls"]


class QueueCalls(CallBase):
    """Operations on queues, their properties and bindings, and on the cluster."""

    def delete(self, queue: Name) -> Future[str]:
        """Delete a queue with all its messages. Awaited: ``"ok"``, also if it did not exist."""
        return self._call(Call, request_body(b"delete", [name_bytes(queue)]), ok)

    def purge(self, queue: Name) -> Future[int]:
        """Remove all messages of a queue that are not leased: ready, delayed, and in an open accumulation window.

        Messages pushed during the purge stay, unless they arrive when fewer are left than the queue held at its start. The call
        is idempotent. If the client retries it after a lost connection, the result counts only the last attempt.

        Returns:
            Awaited: number of removed messages.

        Raises:
            LmqError: awaited: ``queue_not_found``.
        """
        return self._call(Call, request_body(b"purge", [name_bytes(queue)]), int)

    def move(self, queue: Name, to: Name, max: int | None = None) -> Future[int]:  # noqa: A002
        """Move messages that can be pulled now to the end of another queue, in their order, as new messages.

        They keep content, content type and headers. The target queue determines their number of deliveries and does not
        accumulate them. This call is not idempotent: if the connection is lost before the answer, it fails with outcome
        ``unknown``.

        Args:
            queue: name of the source queue.
            to: name of the target queue, which is created if it does not exist.
            max: maximum number of messages to move; None = all.

        Returns:
            Awaited: number of moved messages.

        Raises:
            LmqError: awaited: ``queue_not_found``, ``bad_name``, ``bad_request``, ``unknown_outcome``.
        """
        arguments = [name_bytes(queue), name_bytes(to), *_limit(max)]
        return self._call(NonRepeatableCall, request_body(b"move", arguments), int)

    def withdraw(self, queue: Name, label: Name, max: int | None = None) -> Future[int]:  # noqa: A002
        """Remove messages with a label that are not leased.

        The call is idempotent. If the client retries it after a lost connection, the result counts only the last attempt.

        Args:
            queue: name of the queue.
            label: label from the push.
            max: maximum number of messages to remove; None = all.

        Returns:
            Awaited: number of removed messages.

        Raises:
            LmqError: awaited: ``queue_not_found``, ``bad_request``.
        """
        arguments = [name_bytes(queue), name_bytes(label), *_limit(max)]
        return self._call(Call, request_body(b"withdraw", arguments), int)

    def count_labelled(self, queue: Name, label: Name) -> Future[int]:
        """Count the messages with a label that are not leased.

        Raises:
            LmqError: awaited: ``queue_not_found``, ``bad_request``.
        """
        return self._call(Call, request_body(b"count_labelled", [name_bytes(queue), name_bytes(label)]), int)

    def redrive(
        self,
        queue: Name,
        *,
        to: Name | None = None,
        label: Name | None = None,
        max: int | None = None,  # noqa: A002
    ) -> Future[int]:
        """Send messages that the cluster moved into a queue, such as dead letters, back to their queues of origin.

        Each becomes a new message with its label, group and priority. The call is idempotent, because messages sent by an earlier
        attempt are no longer in the queue. If the client retries it, the result counts only the last attempt.

        Args:
            queue: name of the queue that holds them.
            to: name of another target queue.
            label: send only messages with this label.
            max: maximum number of messages to send; None = all.

        Returns:
            Awaited: number of sent messages.

        Raises:
            LmqError: awaited: ``queue_not_found``, ``bad_name``, ``bad_request``.
        """
        options: dict[str, Any] = {}
        if max is not None:
            (options["max"],) = _limit(max)
        if to is not None:
            options["to"] = name_bytes(to)
        if label is not None:
            options["label"] = name_bytes(label)
        return self._call(Call, request_body(b"redrive", [name_bytes(queue), options]), int)

    def bind(self, source: Name, target: Name) -> Future[bool]:
        """Store a copy of each message pushed to one queue in another, atomically. Both are created if they do not exist.

        Returns:
            Awaited: True if the binding is new. After a retry it may be False because of the first attempt.

        Raises:
            LmqError: awaited: ``bad_name``, ``bad_request``.
        """
        return self._call(Call, request_body(b"bind", [name_bytes(source), name_bytes(target)]), bool)

    def unbind(self, source: Name, target: Name) -> Future[bool]:
        """Remove a binding. Awaited: whether it existed; after a retry as for `bind`."""
        return self._call(Call, request_body(b"unbind", [name_bytes(source), name_bytes(target)]), bool)

    def bindings(self, source: Name) -> Future[list[str]]:
        """List the queues that receive copies of messages pushed to this one, as far as the token covers them."""
        return self._call(Call, request_body(b"bindings", [name_bytes(source)]), _names)

    def suspend(self, queue: Name) -> Future[str]:
        """Stop deliveries from a queue until `resume`. All pulls, also by pattern and of batches, treat it as empty.

        Pushes, acks, nacks and extends still work, and leases expire. The suspension applies to all nodes and survives restarts.

        Returns:
            Awaited: ``"ok"``, also if the queue is already suspended.

        Raises:
            LmqError: awaited: ``queue_not_found``.
        """
        return self._call(Call, request_body(b"suspend", [name_bytes(queue)]), ok)

    def resume(self, queue: Name) -> Future[str]:
        """Resume deliveries from a suspended queue, first to the pulls that already wait. Result as `suspend`."""
        return self._call(Call, request_body(b"resume", [name_bytes(queue)]), ok)

    def update_props(
        self, queue: Name, props: Mapping[str, Any] | None = None, *, only_unset: bool = False
    ) -> Future[str]:
        """Set some of a queue's properties, or clear all that were set on it.

        Args:
            queue: name of the queue, which is created if it does not exist.
            props: any of ``accum`` (also called ``pack``; seconds), ``retry``, ``timeout`` (seconds), ``hooks``, ``max_items``
                and the like, see docs/properties.md; the others are kept. None or empty: the queue reverts to the defaults.
            only_unset: keep properties that the queue already has, whether set on it, by a default rule or by its parent. So a
                program can set what it needs, and an operator can override it.

        Returns:
            Awaited: ``"ok"``.

        Raises:
            LmqError: awaited: ``bad_property``.
        """
        arguments: list[Any] = [name_bytes(queue)] if props is None else [name_bytes(queue), dict(props)]
        if only_unset:
            arguments = [name_bytes(queue), dict(props or {}), {"only_unset": True}]
        return self._call(Call, request_body(b"update_props", arguments), ok)

    def set_default_props(self, rules: Iterable[tuple[str, Mapping[str, Any]]]) -> Future[str]:
        """Replace the list of default properties.

        Args:
            rules: pairs of a regular expression (RE2) and properties; the first one that matches a queue's name applies.

        Returns:
            Awaited: ``"ok"``.
        """
        return self._call(
            Call,
            request_body(b"set_default_props", [[[pattern, dict(props)] for pattern, props in rules]]),
            ok,
        )

    def get_default_props(self) -> Future[list[tuple[str, dict[str, Any]]]]:
        """Return the list of default properties as it was set. Accumulation appears as ``pack``, in seconds."""
        return self._call(Call, request_body(b"get_default_props", []), _rules)

    def cluster(self) -> Future[dict[str, Any]]:
        """Return the node's view of the cluster, including ``self``, ``leader`` and the nodes' addresses."""
        return self._call(Call, request_body(b"cluster", []), mapping)

    def ping(self) -> Future[str]:
        """Ping the cluster. Awaited: ``"pong"`` from any node that answers."""
        return self._call(Call, request_body(b"ping", []), name_text)


def _limit(most: int | None) -> list[int]:
    """Return the maximum number of messages as an optional last argument."""
    if most is not None and most < 1:
        raise ValueError(f"max must be 1 or more, not {most!r}")
    return [] if most is None else [most]


def _names(names: list[bytes]) -> list[str]:
    return [name_text(name) for name in names]


def _rules(result: Any) -> list[tuple[str, dict[str, Any]]]:
    return [(pattern, props) for pattern, props in decode_strings(result)]
