"""Faults of the network, each implemented by the proxies of the affected links."""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import permutations
from typing import ClassVar

from ..injection.toxics import DOWN, UP, Link
from ..stage import Stage
from .base import Fault, TargetedFault, names

__all__ = ["Bandwidth", "Flap", "Latency", "Partition", "Reset", "Ring", "Slicer", "SlowNames", "Tear"]

_LINKS = ("peers", "clients", "all")
_DIRECTIONS = ("both", "in", "out")
_SITES = ("inside", "outside")


@dataclass
class _Cuts(Fault):
    """Cuts directed links between nodes: data sent by one node does not reach the other, without an error."""

    cut_links: list[tuple[Link, str]] = field(default_factory=list, init=False)

    def begin(self, stage: Stage) -> None:
        """Cut the links."""
        self.cut_links = list(self.links(stage))
        self.cut()

    def end(self, stage: Stage) -> None:
        """Restore the links."""
        self.join()

    def cut(self) -> None:
        """Drop everything."""
        for link, stream in self.cut_links:
            link.cut(stream)

    def join(self) -> None:
        """Forward everything again, on new connections."""
        for link, stream in self.cut_links:
            link.mend(stream)

    @abstractmethod
    def links(self, stage: Stage) -> Iterator[tuple[Link, str]]:
        """Yield the links to cut, with the direction."""


@dataclass
class Partition(_Cuts):
    """Some nodes are cut off from the others.

    Attributes:
        target: the nodes on one side.
        direction: ``both``; ``out``: what they send is lost; ``in``: what is sent to them is lost.
        clients: location of the clients beside the isolated nodes: ``inside``, cut off from the other nodes, like those
            on the other side from these; ``outside``: the cut is between nodes only.
    """

    kind: ClassVar[str] = "partition"
    target: str = "leader"
    direction: str = "both"
    clients: str = "outside"

    def check(self) -> str | None:
        """Check that all words are known."""
        if self.direction not in _DIRECTIONS:
            return f"direction must be one of {', '.join(_DIRECTIONS)}"
        return None if self.clients in _SITES else f"clients must be one of {', '.join(_SITES)}"

    def links(self, stage: Stage) -> Iterator[tuple[Link, str]]:
        """Yield the links between the two sides."""
        cluster = stage.cluster
        inside = names(stage.choose(self.target))
        self.hit = inside
        outside = [node.name for node in cluster.nodes if node.name not in inside]
        for here in inside:
            for there in outside:
                if self.direction != "in":
                    yield cluster.peer_link(here, there), UP
                if self.direction != "out":
                    yield cluster.peer_link(there, here), UP
                if self.clients == "inside":
                    for site, node in ((here, there), (there, here)):
                        for link in cluster.client_links(site, node):
                            yield link, UP
                            yield link, DOWN


@dataclass
class Ring(_Cuts):
    """Every node reaches only its two neighbours, so each one sees a different majority. Intended for five nodes."""

    kind: ClassVar[str] = "ring"

    def links(self, stage: Stage) -> Iterator[tuple[Link, str]]:
        """Yield the links between nodes that are not neighbours."""
        nodes = names(stage.cluster.nodes)
        self.hit = nodes
        for (i, here), (j, there) in permutations(enumerate(nodes), 2):
            if (i - j) % len(nodes) not in {1, len(nodes) - 1}:
                yield stage.cluster.peer_link(here, there), UP


@dataclass
class SlowNames(Fault):
    """The name server is slow; with a large delay, it hangs.

    Attributes:
        delay_s: duration of each look-up in seconds.
    """

    kind: ClassVar[str] = "slow_names"
    delay_s: float = 5.0

    def begin(self, stage: Stage) -> None:
        """Delay the look-ups."""
        stage.cluster.delay_names(self.delay_s)

    def end(self, stage: Stage) -> None:
        """Answer without delay again."""
        stage.cluster.delay_names(0)


@dataclass
class Flap(Partition):
    """A partition that alternates between cut and restored.

    Attributes:
        period_s: seconds from one cut to the next; half of them cut, half restored.
    """

    kind: ClassVar[str] = "flap"
    period_s: float = 1.0
    _stop: threading.Event = field(default_factory=threading.Event, init=False)
    _thread: threading.Thread | None = field(default=None, init=False)

    def check(self) -> str | None:
        """Also check the period."""
        return super().check() or (None if self.period_s >= 0.2 else "period_s must be at least 0.2")

    def begin(self, stage: Stage) -> None:
        """Begin to alternate."""
        self.cut_links = list(self.links(stage))
        self._thread = threading.Thread(target=self._flap, name="flap")
        self._thread.start()

    def _flap(self) -> None:
        while not self._stop.is_set():
            self.cut()
            self._stop.wait(self.period_s / 2)
            self.join()
            self._stop.wait(self.period_s / 2)

    def end(self, stage: Stage) -> None:
        """Stop alternating, with the links restored."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()


@dataclass
class _Slowness(TargetedFault):
    """A toxic on all links of some nodes.

    Attributes:
        links: ``peers``, ``clients`` or ``all``.
    """

    target: str = "all"
    links: str = "all"
    _poisoned: list[tuple[Link, str]] = field(default_factory=list, init=False)

    def check(self) -> str | None:
        """Check that all words are known."""
        return None if self.links in _LINKS else f"links must be one of {', '.join(_LINKS)}"

    @property
    @abstractmethod
    def toxic(self) -> tuple[str, dict[str, int]]:
        """Return toxiproxy's kind and attributes."""

    def strike(self, stage: Stage) -> None:
        """Add the toxic to the links in both directions."""
        kind, attributes = self.toxic
        for link in _links_of(stage, self.hit, self.links):
            for stream in (UP, DOWN):
                link.add_toxic(kind, stream, attributes)
                self._poisoned.append((link, stream))

    def end(self, stage: Stage) -> None:
        """Remove the toxic."""
        kind, _attributes = self.toxic
        for link, stream in self._poisoned:
            link.remove_toxic(kind, stream)


@dataclass
class Latency(_Slowness):
    """Everything arrives later.

    Attributes:
        latency_ms: one way.
        jitter_ms: maximum deviation.
    """

    kind: ClassVar[str] = "latency"
    latency_ms: int = 100
    jitter_ms: int = 0

    @property
    def toxic(self) -> tuple[str, dict[str, int]]:
        """Return toxiproxy's ``latency``."""
        return "latency", {"latency": self.latency_ms, "jitter": self.jitter_ms}


@dataclass
class Bandwidth(_Slowness):
    """Links have little bandwidth.

    Attributes:
        kb_s: kilobytes a second, per connection and direction.
    """

    kind: ClassVar[str] = "bandwidth"
    kb_s: int = 64

    @property
    def toxic(self) -> tuple[str, dict[str, int]]:
        """Return toxiproxy's ``bandwidth``."""
        return "bandwidth", {"rate": self.kb_s}


@dataclass
class Slicer(_Slowness):
    """Data arrives in small pieces.

    Attributes:
        piece_bytes: average size.
        pause_us: between pieces.
    """

    kind: ClassVar[str] = "slicer"
    piece_bytes: int = 32
    pause_us: int = 200

    @property
    def toxic(self) -> tuple[str, dict[str, int]]:
        """Return toxiproxy's ``slicer``."""
        sizes = {"average_size": self.piece_bytes, "size_variation": self.piece_bytes // 2}
        return "slicer", {**sizes, "delay": self.pause_us}


@dataclass
class Reset(_Slowness):
    """Connections are reset repeatedly, soon after data is sent on them.

    Attributes:
        after_ms: lifetime of a connection.
    """

    kind: ClassVar[str] = "reset"
    after_ms: int = 300

    @property
    def toxic(self) -> tuple[str, dict[str, int]]:
        """Return toxiproxy's ``reset_peer``."""
        return "reset_peer", {"timeout": self.after_ms}


@dataclass
class Tear(_Slowness):
    """Connections are closed repeatedly in the middle of transmitted data.

    Attributes:
        after_bytes: bytes that pass on a connection, in each direction.
    """

    kind: ClassVar[str] = "tear"
    after_bytes: int = 20_000

    @property
    def toxic(self) -> tuple[str, dict[str, int]]:
        """Return toxiproxy's ``limit_data``."""
        return "limit_data", {"bytes": self.after_bytes}


def _links_of(stage: Stage, nodes: list[str], which: str) -> Iterator[Link]:
    cluster = stage.cluster
    everyone = names(cluster.nodes)
    if which != "clients":
        for here, there in permutations(everyone, 2):
            if here in nodes or there in nodes:
                yield cluster.peer_link(here, there)
    if which != "peers":
        for site in cluster.sites:
            for node in nodes:
                yield from cluster.client_links(site, node)
