"""Fixtures for pytest.

``pytest_plugins = ["lmqcluster.testing.fixtures"]`` in the conftest.py of the test root makes them known.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lmqcluster.client import Client

from .cluster import MemoryCluster

__all__ = ["lmq_client", "lmq_cluster"]


@pytest.fixture
def lmq_cluster() -> Iterator[MemoryCluster]:
    """An empty cluster in memory, of the test's own."""
    with MemoryCluster() as cluster:
        yield cluster


@pytest.fixture
def lmq_client(lmq_cluster: MemoryCluster) -> Client:
    """A client of `lmq_cluster`."""
    return lmq_cluster.client()
