"""Histories of made-up drills for `verify`: a healthy run, to which tests add faults and acceptable anomalies."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

__all__ = ["History"]

SECOND = 1_000_000


class History:
    """Lines of a history. Times are in seconds; an operation takes a millisecond unless specified otherwise."""

    def __init__(self) -> None:
        self.lines: list[dict[str, Any] | str] = []

    def add(self, op: str, at: float, *, outcome: str = "ok", end: float | None = None, **fields: Any) -> None:
        """Add one attempt of an operation; fields that are None are omitted."""
        line = {"op": op, "outcome": outcome, "time_us": round(at * SECOND), "process": "c1", **fields}
        if outcome == "ok" or end is not None:
            line["end_us"] = round((at + 0.001 if end is None else end) * SECOND)
        self.lines.append({key: value for key, value in line.items() if value is not None})

    def push(self, value: str, at: float, *, queue: str = "q", sequence: int | None = None, **fields: Any) -> None:
        """Add a push, by the producer ``p1`` unless specified otherwise."""
        self.add("push", at, **{"queue": queue, "value": value, "sequence": sequence, "process": "p1", **fields})

    def pull(self, value: str, receipt: str, at: float, *, queue: str = "q", **fields: Any) -> None:
        """Add a delivery with a lease of 30 s, after which there may be two more."""
        self.add(
            "pull", at, **{"queue": queue, "value": value, "receipt": receipt, "lease_s": 30.0, "retry": 2, **fields}
        )

    def ack(self, receipt: str, at: float, *, queue: str = "q", **fields: Any) -> None:
        """Add an ack."""
        self.add("ack", at, queue=queue, receipt=receipt, **fields)

    def life(self, value: str, at: float, *, queue: str = "q", sequence: int | None = None) -> None:
        """Add a regular message: pushed, delivered a second later, acked a second after that."""
        receipt = f"r-{queue}-{value}"
        self.push(value, at, queue=queue, sequence=sequence)
        self.pull(value, receipt, at + 1, queue=queue)
        self.ack(receipt, at + 2, queue=queue)

    def healthy(self, messages: int = 20, *, queue: str = "q") -> History:
        """Add messages ``v0``, ``v1``, ... of one producer, a second apart."""
        for number in range(messages):
            self.life(f"v{number}", float(number), queue=queue, sequence=number)
        return self

    def drained(self, at: float = 1000.0) -> History:
        """Add that all queues were found empty at the end."""
        self.add("drained", at)
        return self

    def write(self, path: Path) -> str:
        """Write the lines; return the path for `verify`."""
        texts = (line if isinstance(line, str) else json.dumps(line) for line in self.lines)
        path.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
        return str(path)
