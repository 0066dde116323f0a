"""The network between nodes, and between clients and nodes: a toxiproxy-server with one proxy for every directed link.

The client package toxiproxy-python controls it. This module adds what the package lacks: names of several toxics on one
link, removal of all of them, and a private server on a free port.
"""

from __future__ import annotations

import os
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from ..errors import DrillError, MissingToolError
from ..nodes.ports import Ports
from ..nodes.reaper import Reaper
from .toxiproxy_server import toxiproxy_server

if TYPE_CHECKING:
    from toxiproxy import Toxiproxy
    from toxiproxy.api import APIConsumer
    from toxiproxy.proxy import Proxy

__all__ = ["DOWN", "UP", "Link", "Network"]

UP: Final = "upstream"
"""The direction from the dialer to the listener."""
DOWN: Final = "downstream"
_START_S = 30.0
_POLL_S = 0.05
_HOST = "127.0.0.1"
_direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Link:
    """One proxy: forwards connections at `port` to the target, with the current toxics."""

    def __init__(self, proxy: Proxy, port: int) -> None:
        self.name: str = proxy.name
        self.port = port
        self._proxy = proxy
        self._toxics: set[str] = set()

    def add_toxic(self, kind: str, stream: str, attributes: Mapping[str, int]) -> None:
        """Add a toxic; replace one of the same kind and stream.

        Args:
            kind: ``latency``, ``bandwidth``, ``slicer``, ``timeout``, ``reset_peer``, ``slow_close``, ``limit_data``.
            stream: `UP` or `DOWN`.
            attributes: as documented by toxiproxy.
        """
        self.remove_toxic(kind, stream)
        name = f"{kind}_{stream}"
        self._proxy.add_toxic(type=kind, stream=stream, name=name, attributes=dict(attributes))
        self._toxics.add(name)

    def remove_toxic(self, kind: str, stream: str) -> None:
        """Remove one toxic. This closes connections that a ``timeout`` held up."""
        name = f"{kind}_{stream}"
        if name in self._toxics:
            self._proxy.destroy_toxic(name)
            self._toxics.discard(name)

    def cut(self, stream: str) -> None:
        """Drop everything in this direction, without an error."""
        self.add_toxic("timeout", stream, {"timeout": 0})

    def mend(self, stream: str) -> None:
        """End a `cut`."""
        self.remove_toxic("timeout", stream)

    def shut(self) -> None:
        """Close all connections and refuse new ones."""
        self._proxy.disable()

    def open(self) -> None:
        """End a `shut`."""
        self._proxy.enable()

    def remove_toxics(self) -> None:
        """Remove all toxics and accept connections."""
        for name in sorted(self._toxics):
            self._proxy.destroy_toxic(name)
        self._toxics.clear()
        if not self._proxy.enabled:
            self.open()


def _client() -> tuple[Toxiproxy, type[APIConsumer]]:
    """Return a client of the server, and the class that stores the server's address.

    Raises:
        MissingToolError: the package is not installed. Commands that start no drill do not need it.
    """
    try:
        from toxiproxy import Toxiproxy  # noqa: PLC0415
        from toxiproxy.api import APIConsumer  # noqa: PLC0415
    except ModuleNotFoundError as exc:
        raise MissingToolError("toxiproxy-python is not installed: install lmqcluster with the extra drill") from exc
    return Toxiproxy(), APIConsumer


class Network:
    """A private toxiproxy-server."""

    def __init__(self, ports: Ports, reaper: Reaper, log: Path) -> None:
        self._ports = ports
        self._reaper = reaper
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None
        self._server, self._consumer = _client()
        self.links: dict[str, Link] = {}

    def __enter__(self) -> Self:
        port = self._ports.take()
        command = [str(toxiproxy_server()), "-host", _HOST, "-port", str(port)]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        self._reaper.watch(self._process.pid)
        # The package stores the server's address in a class, and connects through a proxy from the environment.
        self._consumer.host, self._consumer.port = _HOST, port
        direct = [name for name in os.environ.get("NO_PROXY", "").split(",") if name and name != _HOST]
        os.environ["NO_PROXY"] = ",".join([*direct, _HOST])
        self._wait_until_it_answers(port)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._reaper.forget(self._process.pid)

    def link(self, name: str, target_port: int) -> Link:
        """Create a proxy to a loopback port."""
        port = self._ports.take()
        proxy: Any = self._server.create(f"{_HOST}:{target_port}", name, f"{_HOST}:{port}")
        self.links[name] = Link(proxy, port)
        return self.links[name]

    def remove_toxics(self) -> None:
        """Remove all toxics of all links."""
        for link in self.links.values():
            link.remove_toxics()

    def _wait_until_it_answers(self, port: int) -> None:
        deadline = time.monotonic() + _START_S
        while True:
            try:
                with _direct.open(f"http://{_HOST}:{port}/version", timeout=1):
                    return
            except (urllib.error.URLError, OSError) as exc:
                if self._process is None or self._process.poll() is not None or time.monotonic() > deadline:
                    raise DrillError(f"toxiproxy-server did not start on port {port}, see {self._log}: {exc}") from exc
                time.sleep(_POLL_S)
