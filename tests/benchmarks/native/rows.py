"""The rows of the table: what is measured on each system."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Protocol(StrEnum):
    """The interface of a system that a row uses."""

    OWN = "own"
    """The system's binary protocol: MessagePack-RPC, or that of NATS."""
    HTTP = "HTTP"
    HTTPS = "HTTPS"
    LIBRARY = "nats.go"
    """JetStream's client library, to compare it with the bare protocol."""


class Operation(StrEnum):
    """One operation of a row."""

    PUSH = "push"
    CONSUME = "pull + done"


class Via(StrEnum):
    """The nodes to which the connections go."""

    LEADER = "leader"
    ALL = "all nodes"


@dataclass(frozen=True, slots=True)
class Row:
    """One measurement, made on each system that has the protocol."""

    operation: Operation
    protocol: Protocol
    connections: int
    in_flight: int
    """Operations in flight on each connection."""
    via: Via

    def __str__(self) -> str:
        protocol = "" if self.protocol is Protocol.OWN else f"{self.protocol} "
        load = f"{self.connections} x {self.in_flight}"
        return f"{protocol}{self.operation}, {load}, {self.via}"


def _pushes(protocol: Protocol, *loads: tuple[int, int, Via]) -> list[Row]:
    return [Row(Operation.PUSH, protocol, *load) for load in loads]


ROWS: Final = (
    *_pushes(
        Protocol.OWN,
        (1, 256, Via.LEADER),
        (1, 1, Via.LEADER),
        (64, 1, Via.LEADER),
        (64, 1, Via.ALL),
        (256, 1, Via.LEADER),
        (256, 1, Via.ALL),
        (512, 1, Via.ALL),
    ),
    *_pushes(Protocol.HTTP, (64, 1, Via.LEADER), (64, 1, Via.ALL), (256, 1, Via.LEADER)),
    *_pushes(Protocol.HTTPS, (64, 1, Via.LEADER), (64, 1, Via.ALL), (256, 1, Via.LEADER)),
    *_pushes(Protocol.LIBRARY, (1, 256, Via.LEADER), (64, 1, Via.ALL)),
    Row(Operation.CONSUME, Protocol.OWN, 1, 256, Via.LEADER),
    Row(Operation.CONSUME, Protocol.OWN, 64, 1, Via.ALL),
)


def select(pattern: str | None) -> Sequence[Row]:
    """Return the rows whose text matches a regular expression, all without one.

    Raises:
        ValueError: none matches, or the expression is invalid.
    """
    try:
        found = [row for row in ROWS if pattern is None or re.search(pattern, str(row))]
    except re.error as exc:
        raise ValueError(f"{pattern!r} is no regular expression: {exc}") from exc
    if not found:
        raise ValueError(f"no row matches {pattern!r}")
    return found


def parse_load(text: str) -> Row:
    """Return the row of ``OPERATION/PROTOCOL/CONNECTIONS/IN-FLIGHT/leader|all``, such as ``push/own/128/1/all``.

    Raises:
        ValueError: the text is something else.
    """
    try:
        operation, protocol, connections, in_flight, via = text.split("/")
        return Row(
            {"push": Operation.PUSH, "consume": Operation.CONSUME}[operation],
            {one.value.lower(): one for one in Protocol}[protocol],
            _positive(connections),
            _positive(in_flight),
            {"leader": Via.LEADER, "all": Via.ALL}[via],
        )
    except (KeyError, ValueError) as exc:
        raise ValueError(f"{text!r} is not OPERATION/PROTOCOL/CONNECTIONS/IN-FLIGHT/leader|all") from exc


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise ValueError(f"{value} is not positive")
    return value
