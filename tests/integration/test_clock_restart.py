"""All nodes restart with wall clocks that are wrong by a day: no deadline is early or late."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lmqcluster_chaos.injection.control import Control
from lmqcluster_chaos.injection.tools import interposer

from .cluster import Cluster, NodeProcess
from .outage import in_step
from .raw_http import call
from .raw_rpc import Rpc
from .test_http_v1 import Api

DAY_S = 86_400.0
LONG_S = 7_200
"""Shorter than the error of the clocks."""
SESSION_S = 3_600
SHORT_S = 1.0


class Clocks:
    """A running cluster, and the wall clocks of its nodes."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster = cluster
        self.controls = {node.name: Control(folder / f"{node.name}.control") for node in cluster.nodes}
        for node in cluster.nodes:
            control = self.controls[node.name]
            node.environment |= {"LD_PRELOAD": str(interposer()), "LMQ_DRILL_CONTROL": str(control.path)}

    def restart(self, *offsets_s: float) -> None:
        """Kill all nodes, set their clocks wrong, and restart them."""
        nodes = self.cluster.nodes
        for node in nodes:
            node.kill()
        for node, offset_s in zip(nodes, offsets_s, strict=True):
            self.controls[node.name].jump_clock(offset_s)
        self.cluster.start()
        in_step(self.cluster)


class Book:
    """The objects that clients created in the cluster, and the log times that they saw."""

    def __init__(self, node: NodeProcess) -> None:
        """Create a lease, a session, and messages with an expiry, a delay and a key."""
        api = Api(node.http)
        self._session = api.ok("POST", "/v1/sessions", {"ttl": SESSION_S})["session"]
        with Rpc(node.rpc) as rpc:
            rpc.call("update_props", "leased", {"timeout": LONG_S})
            rpc.call("push", "leased", 1)
            self._lease = rpc.call("pull", "leased")[b"id"]
        _push(api, "mortal", ttl=LONG_S)
        _push(api, "late", delay=LONG_S)
        _push(api, "keyed", key="k")
        self._look = _log_time_s(node), time.monotonic()

    def check(self, node: NodeProcess) -> None:
        """Check that nothing has changed, and that log time has not run faster than real time."""
        (log_s, at_s), now_log_s = self._look, _log_time_s(node)
        self._look = now_log_s, time.monotonic()
        assert 0.0 <= now_log_s - log_s <= self._look[1] - at_s + 0.1
        api = Api(node.http)
        assert api.ok("POST", f"/v1/sessions/{self._session}/renew") == {"alive": True}
        _push(api, "keyed", key="k")
        shown = {queue: node.get_json(f"/v1/queues/{queue}") for queue in ("leased", "mortal", "late", "keyed")}
        counts = {queue: (one["ready"], one["leased"], one["delayed"]) for queue, one in shown.items()}
        assert counts == {"leased": (0, 1, 0), "mortal": (1, 0, 0), "late": (0, 0, 1), "keyed": (1, 0, 0)}

    def end(self, node: NodeProcess) -> None:
        """Check that the lease is valid, and that log time passes: another, short lease expires."""
        with Rpc(node.rpc) as rpc:
            assert rpc.call("done", "leased", self._lease) == b"ok"
            rpc.call("update_props", "short", {"timeout": SHORT_S})
            rpc.call("push", "short", 1)
            began_s = time.monotonic()
            rpc.call("pull", "short")
            assert rpc.call("pull", "short", 60)[b"content"] == 1
            assert time.monotonic() - began_s >= SHORT_S - 0.1


def _push(api: Api, queue: str, **options: Any) -> None:
    api.ok("POST", f"/v1/queues/{queue}/messages", {"messages": [{"content": "x", **options}]})


def _log_time_s(node: NodeProcess) -> float:
    """Return the log time of a push."""
    with Rpc(node.rpc) as rpc:
        rpc.call("push", "probe", 1)
        pushed_us = rpc.call("peek", "probe", 1000, 0, {"details": True})[b"pushed"]
    return float(pushed_us[-1]) / 1e6


@pytest.fixture(params=[(size, durability) for size in (1, 3) for durability in ("disk", "process")], ids=str)
def clocks(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Clocks]:
    size, durability = request.param
    cluster = Cluster(size, directory=tmp_path, arguments=("--durability", durability))
    clocks = Clocks(cluster, tmp_path)
    with cluster:
        yield clocks


def test_nothing_ends_early_or_late(clocks: Clocks) -> None:
    """First without any snapshot, as in every new cluster, then with one."""
    cluster = clocks.cluster
    size = len(cluster.nodes)
    book = Book(cluster[0])
    clocks.restart(*[DAY_S] * size)
    book.check(cluster[0])
    for node in cluster:
        assert call(node.http, "POST", "/v1/snapshots").status == 200
    clocks.restart(*[-DAY_S] * size)
    book.check(cluster[-1])
    book.end(cluster[-1])


@pytest.mark.parametrize("clocks", [(3, "disk")], indirect=True, ids=str)
def test_a_new_leader_whose_clock_alone_is_wrong(clocks: Clocks) -> None:
    """Only this node can be elected at first: the other one that starts has missed the end of the log."""
    wrong, late, absent = clocks.cluster.nodes
    late.kill()
    book = Book(wrong)
    for node in (wrong, absent):
        node.kill()
    clocks.controls[wrong.name].jump_clock(DAY_S)
    for node in (wrong, late):
        node.start(wait=False)
    for node in (wrong, late):
        node.wait_ready()
    assert clocks.cluster.leader(among=[wrong, late]) is wrong
    book.check(wrong)
    absent.start()
