"""Pulls all messages of queues through several nodes, and acknowledges each after it is written."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from lmqcluster import AsyncClient, Message
from lmqcluster.wire.errors import LmqError

from ...shared.errors import CliError, exit_code_of
from ..queues.contents import json_value

__all__ = ["Drain", "DrainReport", "message_object"]

BATCH_MESSAGES: Final = 500
QUEUES_AT_ONCE: Final = 16
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


@dataclass(slots=True)
class DrainReport:
    """The progress of a drain.

    Attributes:
        queues: messages written, by queue.
        unconfirmed: messages written whose acknowledgement was refused or lost; they may be delivered again.
    """

    queues: Counter[bytes] = field(default_factory=Counter)
    unconfirmed: int = 0


def message_object(message: Message) -> dict[str, object]:
    """Return a pulled message in the form of the API's JSON; a MessagePack value is shown as JSON."""
    # Bytes of a name that are not UTF-8 are surrogates, which no file accepts.
    queue = json_value(message.queue.encode(errors="surrogateescape"))
    shown: dict[str, object] = {"queue": queue, "id": message.id, "type": message.type, "retry": message.retry}
    if message.content_type is not None:
        shown["content_type"] = message.content_type
    if message.priority:
        shown["priority"] = message.priority
    for name, text in (("label", message.label), ("group", message.group)):
        if text is not None:
            shown[name] = json_value(text.encode(errors="surrogateescape"))
    if message.attributes:
        shown["attributes"] = json_value(message.attributes)
    if message.part_attributes:
        shown["part_attributes"] = json_value(message.part_attributes)
    shown["content"] = json_value(message.content)
    return shown


class Drain:
    """One drain of a list of queues."""

    def __init__(
        self,
        clients: Sequence[AsyncClient],
        *,
        wait_s: float,
        write: Callable[[Iterable[str]], None],
        on_progress: Callable[[DrainReport], None],
    ) -> None:
        """Prepare a drain.

        Args:
            clients: one for each node; queues are assigned to them in turn.
            wait_s: seconds without a message after which a queue counts as empty.
            write: stores lines durably; called before the messages are acknowledged. It may raise CliError.
            on_progress: called after every batch.
        """
        self._clients = clients
        self._wait_s = wait_s
        self._write = write
        self._on_progress = on_progress
        self.report = DrainReport()

    async def run(self, queues: Sequence[bytes], stop: asyncio.Event) -> None:
        """Drain the queues until they are empty or `stop` is set; every written message is acknowledged either way.

        Raises:
            CliError: a request failed for good.
        """
        turn = asyncio.Semaphore(QUEUES_AT_ONCE)
        tasks = [
            asyncio.create_task(self._empty(self._clients[position % len(self._clients)], queue, turn, stop))
            for position, queue in enumerate(queues)
        ]
        try:
            await asyncio.gather(*tasks)
        except CliError:
            # The other queues acknowledge their written messages, then end.
            stop.set()
            await asyncio.gather(*tasks, return_exceptions=True)
            raise
        except asyncio.CancelledError:
            for task in tasks:
                task.cancel()
            raise

    async def _empty(self, client: AsyncClient, queue: bytes, turn: asyncio.Semaphore, stop: asyncio.Event) -> None:
        async with turn:
            while not stop.is_set():
                try:
                    messages = await self._pull(client, queue, stop)
                    if not messages:
                        return
                    await self._store(messages)
                    acknowledged = await client.done_many(queue, [message.id for message in messages])
                except LmqError as exc:
                    text = f"queue {queue.decode(errors='replace')}: {exc.message}"
                    raise CliError(text, exit_code_of(exc)) from exc
                self.report.unconfirmed += acknowledged.count(False)
                self.report.queues[queue] += len(messages)
                self._on_progress(self.report)

    async def _store(self, messages: Sequence[Message]) -> None:
        """Write messages; return them to the queue if that fails."""
        try:
            self._write(_encode(message_object(message)) for message in messages)
        except (CliError, BrokenPipeError):
            # A message that cannot be returned now becomes ready when its lease expires.
            await asyncio.gather(*(message.put_back() for message in messages), return_exceptions=True)
            raise

    async def _pull(self, client: AsyncClient, queue: bytes, stop: asyncio.Event) -> list[Message]:
        """Pull the next messages; none if there are none, or once `stop` is set."""
        pulling = asyncio.ensure_future(client.pull_many(queue, BATCH_MESSAGES, timeout=self._wait_s))
        stopping = asyncio.ensure_future(stop.wait())
        either: list[asyncio.Future[Any]] = [pulling, stopping]
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            return pulling.result() if pulling.done() else []
        finally:
            stopping.cancel()
            # The client returns messages in flight. A no-op if the pull is complete.
            pulling.cancel()
