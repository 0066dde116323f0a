"""Short histories of small queues, pushed, pulled and acked over HTTP by clients that never retry."""

from __future__ import annotations

import json
import random
import threading
from collections import deque
from collections.abc import Mapping
from typing import Any

from ..judges.linearizability import is_linearizable
from ..nodes.node_process import ask
from .history import Event, History, Op, Outcome, now_us

__all__ = ["ShortHistories", "judge_short"]

_OPERATIONS = 7
_TIMEOUT_S = 3.0
_REST_S = 1.0


class ShortHistories:
    """Runs one round after another, each with a new queue and one client for each site, until stopped.

    Args:
        sites: by name, HTTP ports of the nodes in order of preference.
        history: records everything; a separate file.
        seed: determines the clients' choices.
    """

    def __init__(self, sites: Mapping[str, list[int]], history: History, seed: int) -> None:
        self._sites = sites
        self._history = history
        self._seed = seed
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="short histories")

    def start(self) -> None:
        """Begin the first round."""
        self._thread.start()

    def stop(self) -> None:
        """Stop after the current round."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            clients = [
                _Client(f"short.{number}", site, ports, self._history, random.Random(f"{self._seed} {number} {site}"))
                for site, ports in self._sites.items()
            ]
            threads = [threading.Thread(target=client.run) for client in clients]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            number += 1
            self._stop.wait(_REST_S)


class _Client:
    """One client of one queue. If a node does not answer, the client uses the next one for its next operation."""

    def __init__(self, queue: str, site: str, ports: list[int], history: History, rng: random.Random) -> None:
        self._queue = queue
        self._site = site
        self._ports = deque(ports)
        self._history = history
        self._rng = rng
        self._receipts: list[str] = []

    def run(self) -> None:
        for number in range(_OPERATIONS):
            kind = self._rng.choice(("push", "push", "pull", "pull", "ack"))
            if kind == "ack" and self._receipts:
                self._ack(self._rng.choice(self._receipts))
            elif kind == "pull":
                self._pull()
            else:
                self._push(f"{self._site}-{number}")

    def _push(self, value: str) -> None:
        begin_us = now_us()
        outcome, error, _answer = self._call("messages", {"messages": [{"content": value}]})
        self._note("push", outcome, begin_us, value=value, error=error)

    def _pull(self) -> None:
        begin_us = now_us()
        outcome, error, answer = self._call("pull", {"max": 1, "timeout": 0})
        messages = answer.get("messages", [])
        value = messages[0]["content"] if messages else None
        receipt = messages[0]["id"] if messages else None
        if receipt is not None:
            self._receipts.append(receipt)
        self._note("pull", outcome, begin_us, value=value, receipt=receipt, error=error)

    def _ack(self, receipt: str) -> None:
        begin_us = now_us()
        outcome, error, answer = self._call("ack", {"ids": [receipt]})
        if outcome == "ok" and not answer["results"][0]:
            outcome = "failed"
        self._note("ack", outcome, begin_us, receipt=receipt, error=error)

    def _note(
        self,
        op: Op,
        outcome: Outcome,
        begin_us: int,
        *,
        value: str | None = None,
        receipt: str | None = None,
        error: str | None = None,
    ) -> None:
        self._history.add(
            Event(
                op=op,
                outcome=outcome,
                time_us=begin_us,
                end_us=now_us(),
                process=self._site,
                site=self._site,
                queue=self._queue,
                value=value,
                receipt=receipt,
                error=error,
            )
        )

    def _call(self, verb: str, body: dict[str, Any]) -> tuple[Outcome, str | None, dict[str, Any]]:
        """Send one request, once; return its outcome, the error, and the answer if it succeeded."""
        try:
            status, answer = ask(self._ports[0], f"/v1/queues/{self._queue}/{verb}", body=body, timeout_s=_TIMEOUT_S)
        except OSError as exc:
            self._ports.rotate(-1)
            return "unknown", type(exc).__name__, {}
        if status == 200:
            return "ok", None, json.loads(answer)
        try:
            problem = json.loads(answer)
        except ValueError:
            return "unknown", str(status), {}
        refused = problem.get("outcome") == "not_applied"
        return ("failed" if refused else "unknown"), str(problem.get("code", status)), {}


def judge_short(events: list[Event]) -> dict[str, bool | None]:
    """Return by queue whether its history is linearizable; None if undecided."""
    queues: dict[str, list[Event]] = {}
    for event in events:
        queues.setdefault(event.queue or "", []).append(event)
    return {queue: is_linearizable(own) for queue, own in queues.items()}
