"""Fixtures that provide real nodes and clusters. Session-wide ones are shared: use `queue_name` and do not
disturb them.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest

from .cluster import Cluster, NodeProcess
from .kestrel_ports import with_kestrel_ports

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """A cluster of one for the whole session."""
    with NodeProcess(tmp_path_factory.mktemp("node")) as process:
        yield process


@pytest.fixture(scope="session")
def shared_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three nodes for the whole session, for tests that kill and pause no node."""
    with with_kestrel_ports(Cluster(3, directory=tmp_path_factory.mktemp("shared"))) as nodes:
        yield nodes


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Three nodes for one test, to be killed, paused and restarted at will."""
    with Cluster(3, directory=tmp_path) as nodes:
        yield nodes


@pytest.fixture
def kestrel_cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Three nodes for one test with the ports for Kestrel's clients."""
    with with_kestrel_ports(Cluster(3, directory=tmp_path)) as nodes:
        yield nodes


@pytest.fixture
def secret_cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Three nodes for one test with a cluster secret, which tokens require."""
    with Cluster(3, directory=tmp_path, environment={"LMQ_CLUSTER_SECRET": "the secret of three nodes"}) as nodes:
        yield nodes


@pytest.fixture
def memory_cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Three nodes for one test in durability memory."""
    with Cluster(3, directory=tmp_path, arguments=("--durability", "memory")) as nodes:
        yield nodes


@pytest.fixture
def new_queue_name(request: pytest.FixtureRequest) -> Callable[[], str]:
    """A function that returns a queue name that is unique in the session."""
    stem = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower()).strip("-")[:80]
    return lambda: f"{stem}-{next(_numbers)}"


@pytest.fixture
def queue_name(new_queue_name: Callable[[], str]) -> str:
    """A queue name that is unique in the session."""
    return new_queue_name()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Print the logs of the nodes that a failed test used."""
    report = yield
    if report.failed and isinstance(item, pytest.Function):
        for value in item.funcargs.values():
            nodes = value.nodes if isinstance(value, Cluster) else [value] if isinstance(value, NodeProcess) else []
            for process in nodes:
                report.sections.append((f"log of {process.name}", process.log_tail()))
    return report
