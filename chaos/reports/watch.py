"""Watches a cluster from outside, bypassing all proxies: the leader, and the progress of every node."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from ..load.history import now_us
from ..nodes.cluster import Cluster
from ..nodes.node_process import NodeProcess

__all__ = ["Election", "Sample", "Watch"]

_PERIOD_S = 0.1
_TIMEOUT_S = 1.0


@dataclass(frozen=True, slots=True)
class Sample:
    """A node's report about the cluster.

    Attributes:
        leader: the leader that the node knows, None if it knows none.
        ready: whether the node leads, or follows a leader, with a quorum.
    """

    time_us: int
    node: str
    raft: str
    leader: str | None
    term: int
    commit: int
    applied: int
    ready: bool


@dataclass(frozen=True, slots=True)
class Election:
    """A new leader, and when a node first reported it."""

    time_us: int
    node: str
    term: int


class Watch:
    """Polls every node ten times a second, in a thread for each, because a paused node does not answer."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._samples: list[Sample] = []
        self._latest: dict[str, Sample] = {}
        self._threads = [
            threading.Thread(target=self._watch, args=(node,), name=f"watch {node.name}") for node in cluster.everyone
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def samples(self) -> list[Sample]:
        """Return all samples so far, in order of time."""
        with self._lock:
            return sorted(self._samples, key=lambda sample: sample.time_us)

    def elections(self) -> list[Election]:
        """Return the leaders in order of their terms, each at the time when a node first reported it."""
        first: dict[int, Election] = {}
        names = {node.raft_address: node.name for node in self._cluster.everyone}
        ids: dict[str, str] = {}
        for sample in self.samples():
            ids.setdefault(sample.raft, sample.node)
            if sample.leader is not None and sample.term not in first:
                node = ids.get(sample.leader) or names.get(sample.leader, sample.leader)
                first[sample.term] = Election(sample.time_us, node, sample.term)
        return [first[term] for term in sorted(first)]

    def commit(self) -> int:
        """Return the highest commit index that any node has reported."""
        with self._lock:
            return max((sample.commit for sample in self._samples), default=0)

    def in_step(self, nodes: Sequence[NodeProcess], commit: int, since_us: int) -> bool:
        """Return whether all these nodes have reported since `since_us` that they know one leader and have applied the
        entry `commit`.
        """
        with self._lock:
            latest = [self._latest.get(node.name) for node in nodes]
        reported = [sample for sample in latest if sample is not None and sample.time_us >= since_us]
        if len(reported) < len(nodes):
            return False
        one_leader = len({(sample.leader, sample.term) for sample in reported}) == 1
        return one_leader and all(sample.ready and sample.applied >= commit for sample in reported)

    def _watch(self, node: NodeProcess) -> None:
        while not self._stop.wait(_PERIOD_S):
            if not node.running or node.paused:
                continue
            try:
                status = node.get_json("/v1/cluster", timeout_s=_TIMEOUT_S)
            except (OSError, ValueError):
                continue
            sample = Sample(
                now_us(),
                node.name,
                status["self"],
                status["leader"],
                status["term"],
                status["commit_index"],
                status["applied_index"],
                status["has_quorum"],
            )
            with self._lock:
                self._samples.append(sample)
                self._latest[node.name] = sample
