"""The load of a drill: producers and consumers at every site, which record their attempts and the outcomes.

A value is ``process-number``, so a lost prefix, middle and suffix can be distinguished. Producers push at a fixed rate
without waiting for answers, up to a limit; so a cluster that does not answer appears as a pause and not as less load.

Shared queues have consumers at every site all the time. Stored queues are consumed only after the faults, because the
loss of a message that was already delivered is not visible. An ordered queue has one consumer, because only then can
the order of deliveries be observed from outside; its pushes carry sequences.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

from lmqcluster import AsyncClient, LmqError, Outcome

from .history import Event, History, Op, now_us
from .history import Outcome as RecordedOutcome

__all__ = ["RETRIES", "ClientFactory", "Load", "Workload", "plain_client"]

RETRIES = 1_000_000
"""Deliveries never run out, so no message is dropped for that reason."""
_SHARED = "drill.shared."
_STORED = "drill.stored."
_ORDERED = "drill.ordered."
_UNANSWERED_MAX = 500
_PULL_S = 0.5
_RESENT_S = _PULL_S + 0.25
"""The client may have resent a pull that took longer than this."""
_PULL_COUNT = 20

ClientFactory = Callable[[Sequence[str], float], AsyncClient]


def plain_client(addresses: Sequence[str], timeout_s: float) -> AsyncClient:
    """Return a client with the usual settings."""
    return AsyncClient(addresses, timeout_s=timeout_s, discover=False)


@dataclass(frozen=True, kw_only=True)
class Load:
    """The amount of load, as set in a scenario.

    Attributes:
        seconds: how long producers push.
        rate: pushes a second of each producer; there is one for each site and queue.
        shared, stored, ordered: number of queues of each kind.
        body_bytes: minimum size of a message; its value is at the beginning.
        lease_s: lease of the queues.
        timeout_s: how long a client retries before it gives up.
    """

    seconds: float = 10.0
    rate: float = 30.0
    shared: int = 1
    stored: int = 1
    ordered: int = 0
    body_bytes: int = 64
    lease_s: float = 6.0
    timeout_s: float = 30.0

    @property
    def names(self) -> list[str]:
        """Return the names of the queues."""
        shared = [f"{_SHARED}{number + 1}" for number in range(self.shared)]
        stored = [f"{_STORED}{number + 1}" for number in range(self.stored)]
        return shared + stored + [f"{_ORDERED}{number + 1}" for number in range(self.ordered)]


class Workload:
    """All clients of a drill, on one event loop.

    Args:
        load: the amount of load.
        sites: by name, the addresses of all nodes in order of preference.
        history: records everything.
        factory: creates the clients; tests use modified ones.

    Attributes:
        pushed: set when all producers have ended and the outcome of every push is known.
    """

    def __init__(
        self, load: Load, sites: dict[str, list[str]], history: History, factory: ClientFactory = plain_client
    ) -> None:
        self._load = load
        self._sites = sites
        self._history = history
        self._factory = factory
        self.pushed = asyncio.Event()
        self._drained = asyncio.Event()
        self._rules: list[tuple[str, dict[str, Any]]] = []

    async def prepare(self) -> None:
        """Set properties of the queues, including recreated ones.

        Raises:
            LmqError: the cluster refuses them.
        """
        properties = {"timeout": self._load.lease_s, "retry": RETRIES}
        # The leases of short histories outlast them.
        ours: list[tuple[str, dict[str, Any]]] = [
            (r"^drill[.]", properties),
            (r"^short[.]", {"timeout": 3600, "retry": RETRIES}),
        ]
        async with self._client(next(iter(self._sites))) as client:
            self._rules = await client.get_default_props()
            await client.set_default_props([*ours, *self._rules])

    async def clean_up(self, queues: Sequence[str]) -> None:
        """Delete the drill's queues, and restore the default properties."""
        async with self._client(next(iter(self._sites))) as client:
            await asyncio.gather(*(client.delete(queue) for queue in queues))
            await client.set_default_props(self._rules)

    async def run(self, until: asyncio.Event, drained: asyncio.Event) -> None:
        """Push and consume until `until` is set, then only consume until `drained` is set."""
        self._drained = drained
        async with AsyncExitStack() as stack, asyncio.TaskGroup() as consumers:
            for number, site in enumerate(self._sites):
                consumer = await stack.enter_async_context(self._client(site))
                for queue in self._load.names:
                    if not queue.startswith(_ORDERED) or number == len(queue) % len(self._sites):
                        consumers.create_task(self._consume(consumer, site, queue, until))
            async with asyncio.TaskGroup() as producers:
                for site in self._sites:
                    producer = await stack.enter_async_context(self._client(site))
                    for queue in self._load.names:
                        producers.create_task(self._produce(producer, site, queue, until))
            self.pushed.set()
            await drained.wait()

    def _client(self, site: str) -> AsyncClient:
        return self._factory(self._sites[site], self._load.timeout_s)

    # --- producers ------------------------------------------------------------------------------------------------

    async def _produce(self, client: AsyncClient, site: str, queue: str, until: asyncio.Event) -> None:
        process = f"{site}-{queue.removeprefix('drill.')}"
        loop = asyncio.get_running_loop()
        unanswered: set[asyncio.Task[None]] = set()
        number, start_s = 0, loop.time()
        while not until.is_set():
            task = asyncio.create_task(self._push(client, site, queue, process, number))
            unanswered.add(task)
            task.add_done_callback(unanswered.discard)
            number += 1
            if len(unanswered) >= _UNANSWERED_MAX:
                # A producer that has fallen behind does not catch up.
                await asyncio.wait(unanswered, return_when=asyncio.FIRST_COMPLETED)
                start_s = loop.time() - number / self._load.rate
            await _sleep_unless(until, start_s + number / self._load.rate - loop.time())
        if unanswered:
            await asyncio.wait(unanswered)

    async def _push(self, client: AsyncClient, site: str, queue: str, process: str, number: int) -> None:
        value = f"{process}-{number}"
        begin_us = now_us()
        outcome: RecordedOutcome = "ok"
        error = None
        try:
            await client.push(queue, value.ljust(self._load.body_bytes, ".").encode())
        except LmqError as exc:
            outcome, error = _outcome(exc), exc.code
        sequence = number if queue.startswith(_ORDERED) else None
        self._note("push", outcome, begin_us, process, site, queue, value=value, sequence=sequence, error=error)

    # --- consumers ------------------------------------------------------------------------------------------------

    async def _consume(self, client: AsyncClient, site: str, queue: str, until: asyncio.Event) -> None:
        if queue.startswith(_STORED):
            await until.wait()
        process = f"{site}-consumer-{queue.removeprefix('drill.')}"
        acks: set[asyncio.Task[None]] = set()
        while not self._drained.is_set():
            begin_us, address = now_us(), client.address
            try:
                messages = await client.pull_many(queue, _PULL_COUNT, timeout=_PULL_S)
            except LmqError as exc:
                self._note("pull", _outcome(exc), begin_us, process, site, queue, error=exc.code)
                continue
            if client.address != address or now_us() - begin_us > _RESENT_S * 1e6:
                # The first node may have taken messages for this pull, and returned them or held them until their
                # leases expire.
                self._note("pull", "unknown", begin_us, process, site, queue)
            if not messages:
                self._note("pull", "ok", begin_us, process, site, queue)
            for message in messages:
                value = bytes(message.content).rstrip(b".").decode()
                self._note(
                    "pull",
                    "ok",
                    begin_us,
                    process,
                    site,
                    queue,
                    value=value,
                    receipt=message.id,
                    lease_s=self._load.lease_s,
                    retry=message.retry,
                )
                task = asyncio.create_task(self._ack(client, site, queue, process, message.id))
                acks.add(task)
                task.add_done_callback(acks.discard)
        if acks:
            await asyncio.wait(acks)

    async def _ack(self, client: AsyncClient, site: str, queue: str, process: str, receipt: str) -> None:
        begin_us = now_us()
        error = None
        outcome: RecordedOutcome
        try:
            outcome = "ok" if await client.done(queue, receipt) else "failed"
        except LmqError as exc:
            outcome, error = _outcome(exc), exc.code
        self._note("ack", outcome, begin_us, process, site, queue, receipt=receipt, error=error)

    def _note(
        self,
        op: Op,
        outcome: RecordedOutcome,
        begin_us: int,
        process: str,
        site: str,
        queue: str,
        *,
        value: str | None = None,
        sequence: int | None = None,
        receipt: str | None = None,
        lease_s: float | None = None,
        retry: int | None = None,
        error: str | None = None,
    ) -> None:
        self._history.add(
            Event(
                op=op,
                outcome=outcome,
                time_us=begin_us,
                end_us=now_us(),
                process=process,
                site=site,
                queue=queue,
                value=value,
                sequence=sequence,
                receipt=receipt,
                lease_s=lease_s,
                retry=retry,
                error=error,
            )
        )


def _outcome(error: LmqError) -> RecordedOutcome:
    """Return whether an operation that ended with an error may have taken effect."""
    return "failed" if error.outcome is Outcome.NOT_APPLIED else "unknown"


async def _sleep_unless(event: asyncio.Event, seconds: float) -> None:
    """Sleep, but at most until the event is set."""
    try:
        await asyncio.wait_for(event.wait(), max(seconds, 0.0))
    except TimeoutError:
        return
