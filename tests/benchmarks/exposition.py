"""Metrics of 1,000 queues as text: ``python -m tests.benchmarks.exposition``, ours beside those of prometheus-client.

The library is measured twice: with a registry created for each page, and with objects that are kept and only set.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from prometheus_client import CollectorRegistry, Gauge, generate_latest

from lmqcluster.node.metrics.exposition import Exposition
from lmqcluster.node.metrics.table import BY_NAME

QUEUES = [f"queue-{number}" for number in range(1_000)]
NAMES = [name for name, one in BY_NAME.items() if one.labels == ("queue",)][:15]
TURNS = 5


def own() -> bytes:
    """Return a page as a node makes it."""
    page = Exposition()
    for name in NAMES:
        page.values(name, [((queue,), 7) for queue in QUEUES])
    return page.text()


def made_each_time() -> bytes:
    """Return a page of the library with objects created for it."""
    registry = CollectorRegistry()
    for name in NAMES:
        gauge = Gauge(name, "help", ["queue"], registry=registry)
        for queue in QUEUES:
            gauge.labels(queue).set(7)
    return generate_latest(registry)


def kept() -> Callable[[], bytes]:
    """Return a function that makes pages of the library with permanent objects."""
    registry = CollectorRegistry()
    gauges = [Gauge(name, "help", ["queue"], registry=registry) for name in NAMES]
    values = [gauge.labels(queue) for gauge in gauges for queue in QUEUES]

    def page() -> bytes:
        for value in values:
            value.set(7)
        return generate_latest(registry)

    return page


def main() -> None:
    """Run the program."""
    for name, page in (("own", own), ("library, made for each page", made_each_time), ("library, kept", kept())):
        best_s = float("inf")
        for _ in range(TURNS):
            began_s = time.process_time()
            page()
            best_s = min(best_s, time.process_time() - began_s)
        print(f"{name}: {best_s * 1e3:.1f} ms of processor time for {len(NAMES) * len(QUEUES):,} values")


if __name__ == "__main__":
    main()
