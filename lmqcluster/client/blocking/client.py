"""The blocking client: the asynchronous one on an event loop in a background thread."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar, Unpack

from lmqcluster.wire.errors import LmqError

from ..aio.client import AsyncClient
from ..aio.messages import Messages
from ..aio.sessions import ClientSession
from ..aio.transactions import SyncTransaction
from ..batches import Backlog, BatchColumns, BatchLease
from ..client_options import ClientOptions
from ..mark import Mark
from ..message import Message
from ..options import Place, PushOptions
from ..schedules import Missed
from ..transport.addresses import NodeAddress
from ..transport.known_nodes import KnownNodes
from ..transport.requests import Name
from .fast_path import FastPath, HandedOver, driven
from .sync_message import SyncMessage

__all__ = ["Client", "ClientOptions", "SyncMessage", "SyncMessages", "SyncSession"]

T = TypeVar("T")


class _Run(Protocol):
    """A function that runs a call on the client's loop and waits for its result."""

    def __call__(self, call: Callable[[], Awaitable[T]], /) -> T: ...


class Client:
    """`AsyncClient` for code without an event loop: the same methods, each of which waits for its result.

    ``with Client("host:18800,host:18810") as client:`` connects on entry and closes on exit. A client may be shared between
    threads. Concurrent calls share one connection. If one thread calls alone and often, it uses a second connection to the same
    node without the event loop. Errors and options are those of `AsyncClient`.
    """

    def __init__(
        self, nodes: str | Iterable[str] | KnownNodes = "127.0.0.1:18800", **options: Unpack[ClientOptions]
    ) -> None:
        """Configure the client without sending anything.

        Args:
            nodes: ``"host:port,host:port"`` or a list of ``"host:port"``, the addresses to start with.
            options: see `ClientOptions`.

        Raises:
            ValueError: an argument is out of range or not an address.
        """
        self._client: AsyncClient = AsyncClient(nodes, **options)
        self._pid = os.getpid()
        self._thread = _LoopThread()
        self._direct = FastPath(self._client, self._thread.loop, self._thread.ident)
        self._message_type = SyncMessage if self._client._tracer is None else _traced_message_type()
        self._calling: set[int] = set()  # threads whose calls go over the event loop
        # If a client is garbage-collected without `close`, its thread must end too.
        self._end = weakref.finalize(self, _end, self._direct, self._thread, self._pid)

    def __enter__(self) -> Self:
        try:
            self.ping()
        except BaseException:
            self.close(0)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self, grace_s: float | None = None) -> None:
        """Wait for the answers to calls of other threads, for `grace_s` (default ``timeout_s``), and disconnect."""
        if self._pid != os.getpid():
            self._end()
        elif self._end.alive:
            try:
                left_s = self._client._calls.timeout_s if grace_s is None else grace_s
                self._direct.close(left_s)
                self._run(lambda: self._close(left_s))
            finally:
                self._end()

    async def _close(self, grace_s: float) -> None:
        await self._direct.finish(grace_s)
        await self._client.close(grace_s)

    @property
    def timeout_s(self) -> float:
        """Maximum duration of a call in seconds."""
        return self._client._calls.timeout_s

    @property
    def settlements_given_up(self) -> int:
        """Number of settlements that ended without a known outcome, see `AsyncClient.settlements_given_up`."""
        return self._client.settlements_given_up

    @property
    def address(self) -> NodeAddress | None:
        """Address of the node that the client is connected to at present, as ``(host, port)``."""
        return self._client.address

    @property
    def nodes(self) -> tuple[NodeAddress, ...]:
        """Addresses of all nodes that the client may connect to, see `AsyncClient.nodes`."""
        return self._client.nodes

    def pull(
        self,
        queue: Name,
        timeout: float | None = None,
        *,
        lease: float | None = None,
        auto_ack: bool = False,
        session: Name | None = None,
        after: Name | None = None,
    ) -> SyncMessage | None:
        """Take the next message, waiting up to `timeout` seconds (None = without limit), see `AsyncClient.pull`."""
        pulled = self._pull(
            lambda client: client.pull(queue, timeout, lease=lease, auto_ack=auto_ack, session=session, after=after)
        )
        return self._message(pulled)

    def pull_any(self, pattern: Name, timeout: float | None = None) -> SyncMessage | None:
        """Take one message from any queue whose name matches, see `AsyncClient.pull_any`."""
        return self._message(self._pull(lambda client: client.pull_any(pattern, timeout)))

    def pull_many(
        self,
        queue: Name,
        max: int,
        timeout: float | None = 0,
        *,
        lease: float | None = None,
        auto_ack: bool = False,
        session: Name | None = None,
        after: Name | None = None,
    ) -> list[SyncMessage]:
        """Take up to `max` messages, see `AsyncClient.pull_many`."""
        found = self._pull(
            lambda client: client.pull_many(
                queue, max, timeout, lease=lease, auto_ack=auto_ack, session=session, after=after
            )
        )
        return self._messages(found)

    def messages(self, queue: Name, *, prefetch: int = 1, timeout: float | None = None) -> SyncMessages:
        """Iterate over the messages of a queue: ``for message in client.messages("jobs"):``, see `AsyncClient.messages`."""
        return SyncMessages(self, self._run, self._client.messages(queue, prefetch=prefetch, timeout=timeout))

    def put_back(self, queue: Name, message_id: Name) -> bool:
        """Return a message to its queue as if it had never been pulled, see `AsyncClient.put_back`."""
        return self.put_back_many(queue, [message_id])[0]

    def session(self, ttl: float = 30.0) -> SyncSession:
        """Return a session for ``with client.session() as session:``, renewed in the background, see `AsyncClient.session`."""
        return SyncSession(self, self._client.session(ttl), self._run)

    def transaction(self) -> SyncTransaction:
        """Return a transaction for ``with client.transaction() as transaction:``, see `AsyncClient.transaction`."""
        return SyncTransaction(self._client._send_transaction, self._client, self._run)

    # --- calls, written by `python -m deploy.blocking_client` -----------------------------------------------------------

    def push(self, queue: Name, content: Any, **options: Unpack[PushOptions]) -> str:
        """Push one message, which is stored exactly once even if nodes fail; see `AsyncClient.push`."""
        return self._do(lambda client: client.push(queue, content, **options))

    def push_many(
        self,
        queue: Name,
        contents: Sequence[Any],
        *,
        keys: Sequence[Name] | None = None,
        content_types: Sequence[Name | None] | None = None,
        options: Sequence[PushOptions | None] | None = None,
    ) -> list[str]:
        """Push many messages to one queue, in order; much faster than single pushes; see `AsyncClient.push_many`."""
        return self._run(
            lambda: self._client.push_many(queue, contents, keys=keys, content_types=content_types, options=options)
        )

    def push_all(self, pattern: Name, content: Any) -> str:
        """Push one message to every queue whose name matches; see `AsyncClient.push_all`."""
        return self._run(lambda: self._client.push_all(pattern, content))

    def done(self, queue: Name, message_id: Name) -> bool:
        """Ack: remove a message for good; see `AsyncClient.done`."""
        return self._do(lambda client: client.done(queue, message_id))

    def release(
        self,
        queue: Name,
        message_id: Name,
        *,
        delay: float | None = None,
        place: Place = "tail",
        reason: str | None = None,
    ) -> bool:
        """Nack: return a message for redelivery, which costs a retry; see `AsyncClient.release`."""
        return self._do(lambda client: client.release(queue, message_id, delay=delay, place=place, reason=reason))

    def retain(self, queue: Name, message_id: Name, *, lease: float | None = None) -> bool:
        """Extend: restart a message's lease; see `AsyncClient.retain`."""
        return self._do(lambda client: client.retain(queue, message_id, lease=lease))

    def done_many(self, queue: Name, message_ids: Sequence[Name]) -> list[bool]:
        """Ack several messages of one queue; see `AsyncClient.done_many`."""
        return self._do(lambda client: client.done_many(queue, message_ids))

    def release_many(
        self,
        queue: Name,
        message_ids: Sequence[Name],
        *,
        delay: float | None = None,
        place: Place = "tail",
        reason: str | None = None,
    ) -> list[bool]:
        """Nack several messages of one queue, see `done_many` and `release`; see `AsyncClient.release_many`."""
        return self._do(lambda client: client.release_many(queue, message_ids, delay=delay, place=place, reason=reason))

    def retain_many(self, queue: Name, message_ids: Sequence[Name], *, lease: float | None = None) -> list[bool]:
        """Extend the leases of several messages of one queue, see `done_many` and `retain`; see `AsyncClient.retain_many`."""
        return self._do(lambda client: client.retain_many(queue, message_ids, lease=lease))

    def put_back_many(self, queue: Name, message_ids: Sequence[Name]) -> list[bool]:
        """Return several messages to one queue without charging a retry; see `AsyncClient.put_back_many`."""
        return self._do(lambda client: client.put_back_many(queue, message_ids))

    def delete(self, queue: Name) -> str:
        """Delete a queue with all its messages; see `AsyncClient.delete`."""
        return self._run(lambda: self._client.delete(queue))

    def purge(self, queue: Name) -> int:
        """Remove all messages of a queue that are not leased: ready, delayed; see `AsyncClient.purge`."""
        return self._run(lambda: self._client.purge(queue))

    def move(self, queue: Name, to: Name, max: int | None = None) -> int:
        """Move messages that can be pulled now to the end of another queue, in their order; see `AsyncClient.move`."""
        return self._run(lambda: self._client.move(queue, to, max))

    def withdraw(
        self, queue: Name, label: Name, max: int | None = None, attribute: tuple[str, str] | None = None
    ) -> int:
        """Remove messages with a label that are not leased; see `AsyncClient.withdraw`."""
        return self._run(lambda: self._client.withdraw(queue, label, max, attribute))

    def count_labelled(self, queue: Name, label: Name) -> int:
        """Count the messages with a label that are not leased; see `AsyncClient.count_labelled`."""
        return self._run(lambda: self._client.count_labelled(queue, label))

    def redrive(self, queue: Name, *, to: Name | None = None, label: Name | None = None, max: int | None = None) -> int:
        """Send messages that the cluster moved into a queue, such as dead letters; see `AsyncClient.redrive`."""
        return self._run(lambda: self._client.redrive(queue, to=to, label=label, max=max))

    def start_move_task(self, queue: Name, *, to: Name | None = None, rate: int | None = None) -> int:
        """Start a task that moves the messages of a queue; see `AsyncClient.start_move_task`."""
        return self._run(lambda: self._client.start_move_task(queue, to=to, rate=rate))

    def cancel_move_task(self, queue: Name, number: int) -> int:
        """Cancel a running task; ``task_not_found`` if it does not run; see `AsyncClient.cancel_move_task`."""
        return self._run(lambda: self._client.cancel_move_task(queue, number))

    def move_tasks(self, queue: Name) -> list[dict[str, Any]]:
        """List the latest tasks of a queue, the newest first; see `AsyncClient.move_tasks`."""
        return self._run(lambda: self._client.move_tasks(queue))

    def bind(self, source: Name, target: Name) -> bool:
        """Store a copy of each message pushed to one queue in another, atomically; see `AsyncClient.bind`."""
        return self._run(lambda: self._client.bind(source, target))

    def unbind(self, source: Name, target: Name) -> bool:
        """Remove a binding; see `AsyncClient.unbind`."""
        return self._run(lambda: self._client.unbind(source, target))

    def bindings(self, source: Name) -> list[str]:
        """List the queues that receive copies of messages pushed to this one; see `AsyncClient.bindings`."""
        return self._run(lambda: self._client.bindings(source))

    def suspend(self, queue: Name) -> str:
        """Stop deliveries from a queue until `resume`; see `AsyncClient.suspend`."""
        return self._run(lambda: self._client.suspend(queue))

    def resume(self, queue: Name) -> str:
        """Resume deliveries from a suspended queue, first to the pulls that already wait; see `AsyncClient.resume`."""
        return self._run(lambda: self._client.resume(queue))

    def update_props(
        self,
        queue: Name,
        props: Mapping[str, Any] | None = None,
        *,
        only_unset: bool = False,
        annotations: Mapping[str, str | None] | None = None,
    ) -> str:
        """Set some of a queue's properties, or clear all that were set on it; see `AsyncClient.update_props`."""
        return self._run(
            lambda: self._client.update_props(queue, props, only_unset=only_unset, annotations=annotations)
        )

    def set_default_props(self, rules: Iterable[tuple[str, Mapping[str, Any]]]) -> str:
        """Replace the list of default properties; see `AsyncClient.set_default_props`."""
        return self._run(lambda: self._client.set_default_props(rules))

    def get_default_props(self) -> list[tuple[str, dict[str, Any]]]:
        """Return the list of default properties as it was set; see `AsyncClient.get_default_props`."""
        return self._run(self._client.get_default_props)

    def cluster(self) -> dict[str, Any]:
        """Return the node's view of the cluster, including ``self``; see `AsyncClient.cluster`."""
        return self._run(self._client.cluster)

    def ping(self) -> str:
        """Ping the cluster; see `AsyncClient.ping`."""
        return self._run(self._client.ping)

    def reserve_batch(
        self,
        subscription: Name,
        epoch: int,
        *,
        queue: Name | None = None,
        pattern: Name | None = None,
        count: int,
        lease_s: float = 86400.0,
        session: int | None = None,
    ) -> BatchLease:
        """Lease many messages together, for an epoch of a subscription; see `AsyncClient.reserve_batch`."""
        return self._run(
            lambda: self._client.reserve_batch(
                subscription, epoch, queue=queue, pattern=pattern, count=count, lease_s=lease_s, session=session
            )
        )

    def claim_subscription(self, subscription: Name) -> int:
        """Take over a subscription: its later calls require the new session; see `AsyncClient.claim_subscription`."""
        return self._run(lambda: self._client.claim_subscription(subscription))

    def delete_subscription(self, subscription: Name) -> str:
        """Abandon all batches like `abandon_batches`, and delete the subscription; see `AsyncClient.delete_subscription`."""
        return self._run(lambda: self._client.delete_subscription(subscription))

    def read_batch(
        self,
        subscription: Name,
        epoch: int,
        start: int,
        count: int,
        *,
        session: int | None = None,
        details: bool = False,
        skip_lost: bool = False,
    ) -> BatchColumns:
        """Read messages of a batch from position `start`, up to `count`; see `AsyncClient.read_batch`."""
        return self._run(
            lambda: self._client.read_batch(
                subscription, epoch, start, count, session=session, details=details, skip_lost=skip_lost
            )
        )

    def cut_batch(self, subscription: Name, epoch: int, parts: int) -> list[int]:
        """Divide a batch between several readers without splitting a group; see `AsyncClient.cut_batch`."""
        return self._run(lambda: self._client.cut_batch(subscription, epoch, parts))

    def incarnation(self) -> str:
        """Return the name of the cluster's current incarnation; see `AsyncClient.incarnation`."""
        return self._run(self._client.incarnation)

    def renew_batches(self, subscription: Name, lease_s: float = 86400.0, *, session: int | None = None) -> int:
        """Extend the leases of all live batches of a subscription; see `AsyncClient.renew_batches`."""
        return self._run(lambda: self._client.renew_batches(subscription, lease_s, session=session))

    def settle_batches(self, subscription: Name, epoch: int, *, session: int | None = None) -> list[int]:
        """Ack all batches of a subscription up to an epoch; see `AsyncClient.settle_batches`."""
        return self._run(lambda: self._client.settle_batches(subscription, epoch, session=session))

    def abandon_batches(self, subscription: Name, *, session: int | None = None) -> str:
        """Abandon all batches of a subscription; see `AsyncClient.abandon_batches`."""
        return self._run(lambda: self._client.abandon_batches(subscription, session=session))

    def subscription(self, name: Name) -> dict[str, Any] | None:
        """Return the state of a subscription; see `AsyncClient.subscription`."""
        return self._run(lambda: self._client.subscription(name))

    def subscriptions(self) -> list[dict[str, Any]]:
        """List all subscriptions, each as `subscription` returns it with its ``name``; see `AsyncClient.subscriptions`."""
        return self._run(self._client.subscriptions)

    def backlog(
        self,
        *,
        queue: Name | None = None,
        pattern: Name | None = None,
        bytes_max: int | None = None,
        queues_max: int | None = None,
    ) -> Backlog:
        """Count the messages that can be pulled now from a queue; see `AsyncClient.backlog`."""
        return self._run(
            lambda: self._client.backlog(queue=queue, pattern=pattern, bytes_max=bytes_max, queues_max=queues_max)
        )

    def peek(
        self,
        queue: Name,
        count: int,
        start_sequence: int = 0,
        *,
        end_sequence: int | None = None,
        due_from_us: int | None = None,
        due_to_us: int | None = None,
        attribute: tuple[str, str] | None = None,
        details: bool = False,
        bodies: bool = True,
    ) -> BatchColumns:
        """Return messages that are not leased, in order of sequence from `start_sequence`; see `AsyncClient.peek`."""
        return self._run(
            lambda: self._client.peek(
                queue,
                count,
                start_sequence,
                end_sequence=end_sequence,
                due_from_us=due_from_us,
                due_to_us=due_to_us,
                attribute=attribute,
                details=details,
                bodies=bodies,
            )
        )

    def peek_ranges(self, queue: Name, range_bytes: int, ranges_min: int = 1) -> list[int]:
        """Divide a queue into ranges of sequences that can be listed in parallel with `peek`; see `AsyncClient.peek_ranges`."""
        return self._run(lambda: self._client.peek_ranges(queue, range_bytes, ranges_min))

    def push_marked(
        self,
        queue: Name,
        contents: Sequence[Any],
        *,
        job: Name,
        stream: Name,
        first: int,
        note: bytes = b"",
        done: bool = False,
        epoch: int | None = None,
        run: Name = b"",
        content_types: Sequence[Name | None] | None = None,
        options: Sequence[PushOptions | None] | None = None,
    ) -> int | None:
        """Push the next messages of a stream atomically, in one request; see `AsyncClient.push_marked`."""
        return self._run(
            lambda: self._client.push_marked(
                queue,
                contents,
                job=job,
                stream=stream,
                first=first,
                note=note,
                done=done,
                epoch=epoch,
                run=run,
                content_types=content_types,
                options=options,
            )
        )

    def begin_epoch(self, job: Name, epoch: int, run: Name) -> bool:
        """Begin an attempt to write an epoch of a job; see `AsyncClient.begin_epoch`."""
        return self._run(lambda: self._client.begin_epoch(job, epoch, run))

    def finish_epoch(self, job: Name, epoch: int, run: Name, rows: int, digest: bytes) -> None:
        """Finish an epoch after all its messages were pushed; see `AsyncClient.finish_epoch`."""
        self._run(lambda: self._client.finish_epoch(job, epoch, run, rows, digest))

    def mark(self, job: Name, stream: Name) -> Mark | None:
        """Return the stored position of a stream; see `AsyncClient.mark`."""
        return self._run(lambda: self._client.mark(job, stream))

    def end_jobs(self, jobs: Sequence[Name]) -> int:
        """Delete jobs with all their streams; see `AsyncClient.end_jobs`."""
        return self._run(lambda: self._client.end_jobs(jobs))

    def jobs(self) -> list[dict[str, Any]]:
        """List the jobs of the client's token; all jobs for a token with all permissions; see `AsyncClient.jobs`."""
        return self._run(self._client.jobs)

    def open_session(self, ttl: float) -> str:
        """Open a session that ends `ttl` seconds after its last renewal, at most 3,600; see `AsyncClient.open_session`."""
        return self._run(lambda: self._client.open_session(ttl))

    def renew_session(self, session: Name) -> bool:
        """Restart the TTL of a session; see `AsyncClient.renew_session`."""
        return self._run(lambda: self._client.renew_session(session))

    def end_session(self, session: Name) -> bool:
        """End a session and release its leases and locks; see `AsyncClient.end_session`."""
        return self._run(lambda: self._client.end_session(session))

    def leave_queue(self, queue: Name, session: Name) -> bool:
        """Give up the turn, or the place in line; see `AsyncClient.leave_queue`."""
        return self._run(lambda: self._client.leave_queue(queue, session))

    def lock(self, name: Name, session: Name, wait: float | None = None) -> int | None:
        """Acquire a named lock for a session, first come, first served; see `AsyncClient.lock`."""
        return self._run(lambda: self._client.lock(name, session, wait))

    def unlock(self, name: Name, session: Name) -> bool:
        """Release a lock; see `AsyncClient.unlock`."""
        return self._run(lambda: self._client.unlock(name, session))

    def set_schedule(
        self,
        name: Name,
        queue: Name,
        content: Any,
        *,
        interval: float | None = None,
        cron: str | None = None,
        zone: str | None = None,
        start: float | None = None,
        end: float | None = None,
        jitter: float | None = None,
        missed: Missed | None = None,
        content_type: Name | None = None,
        **options: Unpack[PushOptions],
    ) -> str:
        """Create a schedule, or replace the one of this name; see `AsyncClient.set_schedule`."""
        return self._run(
            lambda: self._client.set_schedule(
                name,
                queue,
                content,
                interval=interval,
                cron=cron,
                zone=zone,
                start=start,
                end=end,
                jitter=jitter,
                missed=missed,
                content_type=content_type,
                **options,
            )
        )

    def schedule(self, name: Name) -> dict[str, Any] | None:
        """Return a schedule with its message; awaited: None if there is none of this name; see `AsyncClient.schedule`."""
        return self._run(lambda: self._client.schedule(name))

    def schedules(self) -> list[dict[str, Any]]:
        """List the schedules whose queues the token covers, by name; see `AsyncClient.schedules`."""
        return self._run(self._client.schedules)

    def pause_schedule(self, name: Name) -> str:
        """Stop a schedule until it is resumed; see `AsyncClient.pause_schedule`."""
        return self._run(lambda: self._client.pause_schedule(name))

    def resume_schedule(self, name: Name) -> str:
        """Continue a paused schedule; due times that passed in between count as missed; see `AsyncClient.resume_schedule`."""
        return self._run(lambda: self._client.resume_schedule(name))

    def run_schedule(self, name: Name) -> str:
        """Push the message of a schedule now, in addition to its due times; see `AsyncClient.run_schedule`."""
        return self._run(lambda: self._client.run_schedule(name))

    def delete_schedule(self, name: Name) -> str:
        """Delete a schedule; see `AsyncClient.delete_schedule`."""
        return self._run(lambda: self._client.delete_schedule(name))

    # --- running on the client's loop ---------------------------------------------------------------------------------

    def _message(self, message: Message | None) -> SyncMessage | None:
        return None if message is None else self._message_type(self, message)

    def _messages(self, messages: list[Message]) -> list[SyncMessage]:
        return [self._message_type(self, message) for message in messages]

    def _do(self, call: Callable[[AsyncClient], asyncio.Future[T]]) -> T:
        """Return the result of a call, which takes the fast path if no other thread is calling."""
        direct = self._direct
        if self._calling or not direct.enter():
            return self._run_counted(lambda: call(self._client))
        try:
            future = call(direct.client)
        finally:
            direct.leave()
        return future.result() if future.done() else self._run(lambda: future)

    def _pull(self, call: Callable[[AsyncClient], Coroutine[Any, Any, T]]) -> T:
        """Return the result of a pull, which takes the fast path if that is free."""
        direct = self._direct
        if not direct.enter():
            return self._run(lambda: call(self._client))
        try:
            return driven(call(direct.client))
        except HandedOver as handed:
            pull = handed.call
        finally:
            direct.leave()
        found: T = self._run(lambda: self._client._calls.pulled(pull))
        return found

    def _run_counted(self, call: Callable[[], Awaitable[T]]) -> T:
        # Calls of several threads share requests, which costs the cluster less than separate connections.
        thread = threading.get_ident()
        self._calling.add(thread)
        try:
            return self._run(call)
        finally:
            self._calling.discard(thread)

    def _run(self, call: Callable[[], Awaitable[T]]) -> T:
        self._check_usable()
        return self._thread.run(call)

    def _call_soon(self, call: Callable[[], None]) -> None:
        """Schedule a function on the client's event loop."""
        self._check_usable()
        self._thread.loop.call_soon_threadsafe(call)

    def _check_usable(self) -> None:
        if not self._end.alive:
            raise LmqError("unreachable", "the client is closed", retryable=False)
        if self._pid != os.getpid():
            raise RuntimeError(
                "this process was forked from the one that made the client: make a client in each process"
            )


class SyncMessages:
    """An iterator over the messages of a queue, see `AsyncClient.messages`."""

    def __init__(self, client: Client, run: _Run, messages: Messages) -> None:
        self._client = client
        self._run = run
        self._messages = messages

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> SyncMessage:
        message = self._run(self._messages.next)
        if message is None:
            raise StopIteration
        return self._client._message_type(self._client, message)

    def close(self) -> None:
        """End the iteration and return the prefetched messages without charging a retry."""
        self._run(self._messages.aclose)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _traced_message_type() -> type[SyncMessage]:
    from .traced_message import TracedSyncMessage  # noqa: PLC0415 - only a client with tracing needs OpenTelemetry

    return TracedSyncMessage


def _end(direct: FastPath, thread: _LoopThread, pid: int) -> None:
    direct.drop()
    if pid == os.getpid():  # A forked process does not have the thread.
        thread.stop()


class _LoopThread:
    """An event loop that runs in a daemon thread until it is stopped.

    Attributes:
        loop: the event loop, for `call_soon_threadsafe`.
        ident: identifier of the thread.
    """

    def __init__(self) -> None:
        started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()
        self._thread = threading.Thread(target=_serve, args=(started,), name="lmqcluster-client", daemon=True)
        self._thread.start()
        self.loop, self._stop = started.result()
        self.ident = self._thread.ident

    def run(self, call: Callable[[], Awaitable[T]]) -> T:
        """Await the result of `call` on the loop and return it.

        An interruption of this thread cancels the call.
        """
        if self._thread is threading.current_thread():
            raise RuntimeError("the blocking client cannot be used on its own event loop")
        outcome: Future[T] = Future()
        try:
            self.loop.call_soon_threadsafe(_start, call, outcome)
            return outcome.result()
        except BaseException:
            # A no-op if the call itself failed. The future exists before the call starts, so that an interruption at any moment
            # cancels the pull.
            outcome.cancel()
            raise

    def stop(self) -> None:
        """End the loop and the thread."""
        self.loop.call_soon_threadsafe(self._stop.set)
        # The garbage collector may run this in any thread, also in this one.
        if self._thread is not threading.current_thread():
            self._thread.join()


def _start(call: Callable[[], Awaitable[T]], outcome: Future[T]) -> None:
    loop = asyncio.get_running_loop()
    task = loop.create_task(_awaited(call))

    def finished(task: asyncio.Task[T]) -> None:
        if task.cancelled():
            outcome.cancel()
        elif outcome.set_running_or_notify_cancel():
            error = task.exception()
            if error is None:
                outcome.set_result(task.result())
            else:
                outcome.set_exception(error)

    def pass_cancellation_on(outcome: Future[T]) -> None:
        if outcome.cancelled():
            loop.call_soon_threadsafe(task.cancel)

    task.add_done_callback(finished)
    outcome.add_done_callback(pass_cancellation_on)


async def _awaited(call: Callable[[], Awaitable[T]]) -> T:
    return await call()


def _serve(started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]]) -> None:
    async def until_stopped() -> None:
        stop = asyncio.Event()
        started.set_result((asyncio.get_running_loop(), stop))
        await stop.wait()

    asyncio.run(until_stopped())


class SyncSession:
    """The blocking form of `ClientSession`: ``with client.session() as session:``.

    Attributes:
        id: known within the block.
    """

    def __init__(self, client: Client, session: ClientSession, run: _Run) -> None:
        self._client = client
        self._session = session
        self._run = run

    @property
    def id(self) -> str:
        """Id of the session, known within the block."""
        return self._session.id

    @property
    def lost(self) -> bool:
        """True if the session has ended before the block."""
        return self._session.lost

    def __enter__(self) -> Self:
        self._run(self._session.__aenter__)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._run(lambda: self._session.__aexit__(kind, value, trace))

    def pull(
        self, queue: Name, timeout: float | None = None, *, lease: float | None = None, auto_ack: bool = False
    ) -> SyncMessage | None:
        """Take the next message until it is settled, or the session ends, see `ClientSession.pull`."""
        session = self._session
        return self._client._message(self._run(lambda: session.pull(queue, timeout, lease=lease, auto_ack=auto_ack)))

    def pull_many(
        self,
        queue: Name,
        max: int,
        timeout: float | None = 0,
        *,
        lease: float | None = None,
        auto_ack: bool = False,
    ) -> list[SyncMessage]:
        """Take up to `max` messages, see `ClientSession.pull_many`."""
        session = self._session
        found = self._run(lambda: session.pull_many(queue, max, timeout, lease=lease, auto_ack=auto_ack))
        return self._client._messages(found)

    def leave(self, queue: Name) -> bool:
        """Pass an exclusive queue to the next session in line, see `AsyncClient.leave_queue`."""
        return self._client.leave_queue(queue, self.id)

    @contextlib.contextmanager
    def lock(self, name: Name, wait: float | None = None) -> Iterator[int]:
        """Hold a lock in a block: ``with session.lock("report") as token:``, see `ClientSession.lock`."""
        lock = self._session.lock(name, wait)
        token: int = self._run(lock.__aenter__)
        try:
            yield token
        finally:
            self._run(lambda: lock.__aexit__(None, None, None))
