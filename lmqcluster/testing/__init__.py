"""An in-memory cluster, for tests of programs that use lmqcluster.

`MemoryCluster` is a cluster of one node: the real state machine, queue service and MessagePack-RPC port, without
Raft, files and ports. `lmqcluster.testing.fixtures` provides pytest fixtures.
"""

from .cluster import MemoryCluster

__all__ = ["MemoryCluster"]
