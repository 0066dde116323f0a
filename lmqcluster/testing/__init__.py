"""A cluster in memory, for the tests of programs that use lmqcluster.

`MemoryCluster` is a cluster of one node: the real state machine, queue service and MessagePack-RPC front end, without Raft,
files and ports. `lmqcluster.testing.fixtures` has fixtures for pytest.
"""

from .cluster import MemoryCluster

__all__ = ["MemoryCluster"]
