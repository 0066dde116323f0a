"""A channel between a node and a front end that keeps what is sent."""

from __future__ import annotations

from typing import Any

from lmqcluster.ports.front_ends.channel import Channel

__all__ = ["Recorder"]


class Recorder(Channel):
    """A channel that keeps what is sent: operation, connection and value."""

    def __init__(self) -> None:
        # The base class needs an event loop, and nothing of it is used.
        self.sent: list[tuple[int, int, Any]] = []

    def send(self, operation: int, connection: int, value: Any = None) -> None:
        self.sent.append((operation, connection, value))
