"""Chromium, and a real three-node cluster for one module each."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, sync_playwright

from lmqcluster import Client
from tests.integration.cluster import Cluster

from .console import Console
from .tools import axe_source, chromium

OpenConsole = Callable[..., Console]
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three nodes."""
    secret = {"LMQ_CLUSTER_SECRET": "a secret, without which there are no tokens"}
    with Cluster(3, directory=tmp_path_factory.mktemp("cluster"), environment=secret) as nodes:
        yield nodes


@pytest.fixture(scope="module")
def client(cluster: Cluster) -> Iterator[Client]:
    """A client of the cluster."""
    with Client(",".join(cluster.rpc_addresses)) as client:
        yield client


@pytest.fixture
def queue_name(request: pytest.FixtureRequest) -> str:
    """A unique queue name."""
    return f"{re.sub('[^a-z0-9]+', '-', request.node.name.lower())}-{next(_numbers)}"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A headless Chromium. Playwright keeps an event loop running in this thread, so it must not outlive the module."""
    with sync_playwright() as playwright:
        # Run as root, as in containers, Chromium starts only without its sandbox; it loads only our pages.
        browser = playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def axe() -> str:
    """The JavaScript of axe-core."""
    return axe_source()


@pytest.fixture
def open_console(browser: Browser, cluster: Cluster, tmp_path: Path) -> Iterator[OpenConsole]:
    """Opens consoles of the first node, or of the given node, each in a new browser profile."""
    contexts = []

    def open_console(route: str = "overview", *, node: int = 0, **options: Any) -> Console:
        context = browser.new_context(**options)
        contexts.append(context)
        console = Console(context, cluster[node].http)
        console.open(route)
        return console

    yield open_console
    for context in contexts:
        context.close()
