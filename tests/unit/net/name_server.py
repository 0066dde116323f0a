"""A resolver with answers and delays that a test controls, and addresses that stay silent."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

__all__ = ["NameServer", "listening", "silent_port"]


class NameServer:
    """Answers lookups, each as soon as its name is released.

    Attributes:
        hosts: the addresses of names; a missing name has none.
        asked: number of lookups of each name.
        at_once: maximum number of concurrent lookups of one name.
    """

    def __init__(self, **hosts: list[str]) -> None:
        self.hosts = hosts
        self.asked: Counter[str] = Counter()
        self.at_once = 0
        self._under_way: Counter[str] = Counter()
        self._held: dict[str, threading.Event] = {}
        self._lock = threading.Lock()

    def hold(self, host: str) -> threading.Event:
        """Answer no lookup of this name until the event is set."""
        return self._held.setdefault(host, threading.Event())

    def resolve(self, host: str) -> list[Any]:
        """Stands for `socket.getaddrinfo`."""
        with self._lock:
            self.asked[host] += 1
            self._under_way[host] += 1
            self.at_once = max(self.at_once, self._under_way[host])
        try:
            held = self._held.get(host)
            if held is not None:
                held.wait()
            if host not in self.hosts:
                raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
            if not self.hosts[host]:
                raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
            return [
                found for one in self.hosts[host] for found in socket.getaddrinfo(one, None, type=socket.SOCK_STREAM)
            ]
        finally:
            with self._lock:
                self._under_way[host] -= 1


@contextlib.contextmanager
def listening(host: str = "127.0.0.1", port: int = 0) -> Iterator[socket.socket]:
    """Return a socket that accepts connections."""
    with socket.create_server((host, port), backlog=64) as server:
        yield server


@contextlib.contextmanager
def silent_port(host: str, port: int = 0) -> Iterator[int]:
    """Yield a port that answers nothing: its accept queue is full, so the system drops new connections."""
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(socket.create_server((host, port), backlog=0))
        port = server.getsockname()[1]
        while True:
            one = stack.enter_context(socket.socket())
            one.settimeout(0.1)
            try:
                one.connect((host, port))
            except TimeoutError:
                break
        yield port
