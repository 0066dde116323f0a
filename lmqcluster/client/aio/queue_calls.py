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
    """Operations on queues, their properties and bindings, and what nodes tell of the cluster."""

    def delete(self, queue: Name) -> Future[str]:
        """Delete a queue with all its messages. Awaited: ``"ok"``, also if there was none."""
        return self._call(Call, request_body(b"delete", [name_bytes(queue)]), ok)

    def purge(self, queue: Name) -> Future[int]:
        """Remove all messages of a queue that are not leased: ready, delayed, and in an open accumulation window.

        Messages pushed meanwhile stay, unless they come while fewer are left than the queue held when the purge began. A lost
        connection lets the client repeat it, which is safe, but then only what the last attempt removed is counted.

        Returns:
            Awaited: how many messages were removed.

        Raises:
            LmqError: awaited: ``queue_not_found``.
        """
        return self._call(Call, request_body(b"purge", [name_bytes(queue)]), int)

    def move(self, queue: Name, to: Name, max: int | None = None) -> Future[int]:  # noqa: A002
        """Put messages that can be pulled now at the end of another queue, in their order, as fresh messages.

        Content, content type and headers are kept; how often they may be delivered is the other queue's to say, and it does not
        accumulate them. This cannot be repeated safely: if the connection is lost before the answer, it fails with
        outcome ``unknown``.

        Args:
            queue: name of the queue to take from.
            to: name of the other queue, which is made if it does not exist.
            max: most messages to move; None = all.

        Returns:
            Awaited: how many messages were moved.

        Raises:
            LmqError: awaited: ``queue_not_found``, ``bad_name``, ``bad_request``, ``unknown_outcome``.
        """
        arguments = [name_bytes(queue), name_bytes(to), *_limit(max)]
        return self._call(NonRepeatableCall, request_body(b"move", arguments), int)

    def withdraw(self, queue: Name, label: Name, max: int | None = None) -> Future[int]:  # noqa: A002
        """Remove messages with a label that nobody holds.

        A lost connection lets the client repeat it, which is safe, but then only what the last attempt removed is counted.

        Args:
            queue: name of the queue.
            label: the messages were pushed with it.
            max: most messages to remove; None = all.

        Returns:
            Awaited: how many messages were removed.

        Raises:
            LmqError: awaited: ``queue_not_found``, ``bad_request``.
        """
        arguments = [name_bytes(queue), name_bytes(label), *_limit(max)]
        return self._call(Call, request_body(b"withdraw", arguments), int)

    def count_labelled(self, queue: Name, label: Name) -> Future[int]:
        """How many messages that nobody holds have a label.

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
        """Send messages that the cluster has put into a queue, such as dead letters, back to where they came from.

        Each goes as a fresh message, with its label, group and priority. A lost connection lets the client repeat it, which is
        safe, because what has been sent is gone from the queue; but then only what the last attempt sent is counted.

        Args:
            queue: name of the queue in which they are.
            to: send them there instead.
            label: only those that were pushed with it.
            max: most messages to send; None = all.

        Returns:
            Awaited: how many messages were sent.

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
        """Have a copy of what is pushed to one queue stored in another in the same step. Both are made if they do not exist.

        Returns:
            Awaited: whether it was not so before; of a call that the client has repeated that may be its own first attempt.

        Raises:
            LmqError: awaited: ``bad_name``, ``bad_request``.
        """
        return self._call(Call, request_body(b"bind", [name_bytes(source), name_bytes(target)]), bool)

    def unbind(self, source: Name, target: Name) -> Future[bool]:
        """End what `bind` began. Awaited: whether it was so, see `bind`."""
        return self._call(Call, request_body(b"unbind", [name_bytes(source), name_bytes(target)]), bool)

    def bindings(self, source: Name) -> Future[list[str]]:
        """The queues that get copies of what is pushed to this one, as far as the token covers them."""
        return self._call(Call, request_body(b"bindings", [name_bytes(source)]), _names)

    def suspend(self, queue: Name) -> Future[str]:
        """Let pulls, also by pattern and of batches, find nothing in a queue until `resume`; they wait as if it were empty.

        Pushes, acks, nacks and extends go on, and leases end. It holds for all nodes and outlives restarts.

        Returns:
            Awaited: ``"ok"``, also if it is suspended already.

        Raises:
            LmqError: awaited: ``queue_not_found``.
        """
        return self._call(Call, request_body(b"suspend", [name_bytes(queue)]), ok)

    def resume(self, queue: Name) -> Future[str]:
        """Let a suspended queue hand out messages again, to those first who wait. Result as `suspend`."""
        return self._call(Call, request_body(b"resume", [name_bytes(queue)]), ok)

    def update_props(
        self, queue: Name, props: Mapping[str, Any] | None = None, *, only_unset: bool = False
    ) -> Future[str]:
        """Set some of a queue's own properties, or clear them all.

        Args:
            queue: name of the queue, which is made if it does not exist.
            props: any of ``accum`` (also called ``pack``; seconds), ``retry``, ``timeout`` (seconds), ``hooks``, ``max_items``
                and the like, see docs/properties.md; those not named are kept. None or empty: the queue goes back to the
                defaults.
            only_unset: leave those as they are that the queue has already, of its own, by a default rule or from its parent; so
                a program gives a queue what it needs, and an operator decides otherwise.

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
            rules: pairs of a regular expression (RE2) and properties; the first one that matches a queue's name counts.

        Returns:
            Awaited: ``"ok"``.
        """
        return self._call(
            Call,
            request_body(b"set_default_props", [[[pattern, dict(props)] for pattern, props in rules]]),
            ok,
        )

    def get_default_props(self) -> Future[list[tuple[str, dict[str, Any]]]]:
        """The list of default properties as it was set. Accumulation is shown as ``pack``, in seconds."""
        return self._call(Call, request_body(b"get_default_props", []), _rules)

    def cluster(self) -> Future[dict[str, Any]]:
        """What the node knows of the cluster: among others ``self``, ``leader`` and the nodes' addresses."""
        return self._call(Call, request_body(b"cluster", []), mapping)

    def ping(self) -> Future[str]:
        """Awaited: ``"pong"`` from any node that answers."""
        return self._call(Call, request_body(b"ping", []), name_text)


def _limit(most: int | None) -> list[int]:
    """How many messages at most, as the last argument or none."""
    if most is not None and most < 1:
        raise ValueError(f"max must be 1 or more, not {most!r}")
    return [] if most is None else [most]


def _names(names: list[bytes]) -> list[str]:
    return [name_text(name) for name in names]


def _rules(result: Any) -> list[tuple[str, dict[str, Any]]]:
    return [(pattern, props) for pattern, props in decode_strings(result)]
