"""Fixtures for pytest.

Add ``pytest_plugins = ["lmqcluster.testing.fixtures"]`` to the conftest.py of the test root.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lmqcluster.client import Client

from .cluster import MemoryCluster

__all__ = ["lmq_client", "lmq_cluster"]


@pytest.fixture
def lmq_cluster() -> Iterator[MemoryCluster]:
    """Yield an empty in-memory cluster for one test."""
    with MemoryCluster() as cluster:
        yield cluster


@pytest.fixture
def lmq_client(lmq_cluster: MemoryCluster) -> Client:
    """Return a client of `lmq_cluster`."""
    return lmq_cluster.client()
