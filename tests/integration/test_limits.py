"""Fair groups and limits of deliveries on a real cluster, in short."""

from __future__ import annotations

import asyncio
from pathlib import Path

from .cluster import Cluster
from .limits_loop import jain_index, rated, shares, slots, slots_under_kills, turns


def test_quiet_tenants_are_served_beside_a_backlog(cluster: Cluster) -> None:
    assert asyncio.run(turns(cluster, backlog=5_000, tenants=100, consumers=10)) <= 120


def test_tenants_get_equal_shares(cluster: Cluster) -> None:
    found = asyncio.run(shares(cluster, tenants=20, deliveries=1_000, consumers=10, seed=1))
    assert jain_index(found) > 0.95


def test_a_limit_in_flight_holds_over_all_nodes(tmp_path: Path) -> None:
    journals = tmp_path / "events"
    with Cluster(directory=tmp_path, arguments=["--event-journal", str(journals)]) as cluster:
        used = asyncio.run(slots(cluster, journals, limit=3, consumers=12, messages=300))
    assert (used.deliveries, used.most) == (300, 3)


def test_a_limit_in_flight_holds_while_nodes_are_killed(tmp_path: Path) -> None:
    with Cluster(directory=tmp_path) as cluster:
        most, kills, settled = asyncio.run(slots_under_kills(cluster, limit=3, consumers=12, seconds=12, seed=1))
    assert most <= 3
    assert kills > 0
    assert settled > 0


def test_a_rate_holds_over_all_nodes(cluster: Cluster) -> None:
    count = asyncio.run(rated(cluster, rate=50, consumers=6, seconds=4.0))
    assert 50 <= count <= 250
