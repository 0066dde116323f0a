"""Faults of clients: consumers that die between pull and ack, and queues that are deleted while in use."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from lmqcluster import Client, LmqError, Outcome

from ..errors import DrillError
from ..load.history import Event, now_us
from ..stage import Stage
from .base import Fault

__all__ = ["ClientCrash", "DeleteQueue"]

_CLIENT_S = 60.0
_FIRST_MESSAGE_S = 30.0


@dataclass
class ClientCrash(Fault):
    """A consumer in a separate process pulls messages, acks none, and is killed with -9.

    Attributes:
        messages: maximum number of messages that it pulls before it dies.
    """

    kind: ClassVar[str] = "crash_client"
    messages: int = 10
    _child: subprocess.Popen[str] | None = field(default=None, init=False)
    _lines: list[str] = field(default_factory=list, init=False)
    _taken: threading.Event = field(default_factory=threading.Event, init=False)
    _reader: threading.Thread | None = field(default=None, init=False)
    _queue: str = field(default="", init=False)
    _site: str = field(default="", init=False)
    _began_us: int = field(default=0, init=False)

    def begin(self, stage: Stage) -> None:
        """Start the consumer; return after it has pulled a message, so that it does not die without one on a busy
        machine.
        """
        self._site = stage.rng.choice(stage.cluster.sites)
        self._queue = stage.rng.choice(list(stage.queues))
        addresses = ",".join(stage.cluster.rpc_addresses(self._site))
        script = Path(__file__).parents[1] / "load" / "doomed_consumer.py"
        command = [sys.executable, str(script), addresses, self._queue, str(self.messages)]
        self._began_us = now_us()
        self._child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        stage.cluster.reaper.watch(self._child.pid)
        self._reader = threading.Thread(target=self._read, name="doomed consumer")
        self._reader.start()
        self._taken.wait(_FIRST_MESSAGE_S)

    def _read(self) -> None:
        if self._child is not None and self._child.stdout is not None:
            with self._child.stdout as output:
                for line in output:
                    self._lines.append(line)
                    self._taken.set()
        self._taken.set()

    def end(self, stage: Stage) -> None:
        """Kill it; record what it pulled, and that it may have held more."""
        if self._child is None or self._reader is None:
            raise DrillError("the consumer to kill was never started")
        self._child.kill()
        self._child.wait()
        self._reader.join()
        stage.cluster.reaper.forget(self._child.pid)
        who: dict[str, Any] = {"process": f"doomed-{self._child.pid}", "site": self._site, "queue": self._queue}
        pulled = [json.loads(line) for line in self._lines if line.endswith("\n")]
        for seen in pulled:
            stage.history.add(Event(op="pull", outcome="ok", lease_s=stage.lease_s, **seen, **who))
        begin_us = pulled[-1]["end_us"] if pulled else self._began_us
        stage.history.add(Event(op="pull", outcome="unknown", time_us=begin_us, end_us=now_us(), **who))
        stage.notes.append(f"a consumer died with {len(pulled)} unacknowledged messages of {self._queue}")


@dataclass
class DeleteQueue(Fault):
    """Deletes a queue; the next push recreates it."""

    kind: ClassVar[str] = "delete_queue"

    def begin(self, stage: Stage) -> None:
        """Delete one of the queues under load."""
        queue = stage.rng.choice(list(stage.queues))
        site = stage.rng.choice(stage.cluster.sites)
        begin_us = now_us()
        who: dict[str, Any] = {"process": f"deleter-{site}", "site": site, "queue": queue}
        try:
            with Client(stage.cluster.rpc_addresses(site), timeout_s=_CLIENT_S, discover=False) as client:
                client.delete(queue)
        except LmqError as exc:
            outcome = "failed" if exc.outcome is Outcome.NOT_APPLIED else "unknown"
            event = Event(op="delete", outcome=outcome, time_us=begin_us, end_us=now_us(), error=exc.code, **who)  # type: ignore[arg-type]
        else:
            event = Event(op="delete", outcome="ok", time_us=begin_us, end_us=now_us(), **who)
        stage.history.add(event)
        stage.notes.append(f"{queue} was deleted: {event.outcome}")

    def end(self, stage: Stage) -> None:
        """Do nothing: the load recreates the queue."""
