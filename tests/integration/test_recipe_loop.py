"""Consumers of the recipes that are killed with SIGKILL, and the violations that their judge finds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from .cluster import Cluster, wait_for
from .recipe_faces import open_face
from .recipe_loop import Consumers, judge, recipe_loop

ITEMS = 300
LEASE_S = 2


def test_four_safe_consumers_while_they_and_nodes_are_killed(tmp_path: Path) -> None:
    outcome = recipe_loop(tmp_path, exclusive=False, items=2000, seconds=8, seed=5)
    assert outcome.violations == [], outcome
    assert outcome.consumers_killed, outcome
    assert outcome.nodes_killed, outcome  # The seed kills the first one after less than 8 s.


@pytest.fixture
def consumers(shared_cluster: Cluster, tmp_path: Path, queue_name: str) -> Iterator[Consumers]:
    with Consumers(shared_cluster.rpc_addresses, tmp_path, queue_name) as made:
        yield made


@pytest.mark.parametrize("prefetch", [1, 32])
@pytest.mark.parametrize("flavour", ["threads", "aio"])
def test_exclusive_consumers_that_are_killed_one_after_the_other(
    consumers: Consumers, flavour: str, prefetch: int, shared_cluster: Cluster, queue_name: str
) -> None:
    def standing_by() -> int:
        return int(shared_cluster[0].get_json(f"/v1/queues/{queue_name}")["standing_by"])

    with (
        open_face(flavour, shared_cluster.rpc_addresses) as face,
        face.queue(queue_name, safe=True, exclusive=True) as producer,
    ):
        producer.put("0")
        for number in range(3):
            options = ("--exclusive", "--lease", str(LEASE_S), "--prefetch", str(prefetch))
            consumers.start(f"c{number}", flavour, *options)
            wait_for(lambda number=number: consumers.handled() and standing_by() == number, f"{number} in line")  # type: ignore[misc]
        for number in range(1, ITEMS):
            producer.put(str(number))
        for number in range(2):
            part = ITEMS * (number + 1) // 3
            wait_for(lambda part=part: consumers.handled() >= part, f"{part} items")  # type: ignore[misc]
            consumers.kill(f"c{number}")
        wait_for(lambda: producer.message_count() == 0, "the others")
        # A killed consumer may have handled an item that was redelivered.
        wait_for(lambda: len(judge(consumers.lines(), ITEMS, exclusive=True).handled) == ITEMS, "the last one")
    lines = consumers.lines()
    outcome = judge(lines, ITEMS, exclusive=True, at_once=1)
    assert outcome.violations == [], outcome
    # The consumer that waited longest is next.
    owners = [line.split()[1] for line in lines if line.startswith("begin")]
    assert owners == sorted(owners)
    assert set(owners) == {"c0", "c1", "c2"}


@pytest.mark.parametrize("flavour", ["threads", "aio"])
def test_a_paused_consumer_does_not_handle_items_of_others(
    consumers: Consumers, flavour: str, shared_cluster: Cluster, queue_name: str
) -> None:
    with (
        open_face(flavour, shared_cluster.rpc_addresses) as face,
        face.queue(queue_name, safe=True, put_in_background=False) as producer,
    ):
        for number in range(10):
            producer.put(str(number))
        consumers.start("frozen", flavour, "--lease", str(LEASE_S), "--prefetch", "10", "--hold", "1")
        wait_for(lambda: "begin frozen 0" in consumers.lines(), "one in hand")
        consumers.freeze("frozen")
        consumers.start("other", flavour, "--lease", str(LEASE_S))
        wait_for(lambda: consumers.handled() == 10, "all of them")
        consumers.thaw("frozen")
        wait_for(lambda: "end frozen 0" in consumers.lines(), "the end of its item in flight")
        consumers.kill("other")
        producer.put("10")
        wait_for(lambda: "end frozen 10" in consumers.lines(), "it goes on")
    begun = [line.split()[2] for line in consumers.lines() if line.startswith("begin frozen")]
    assert begun == ["0", "10"]


SAFE = ["begin a 0", "begin b 1", "end b 1", "killed a", "begin b 0", "end b 0"]


def test_the_judge_accepts_permitted_repetitions() -> None:
    outcome = judge(SAFE, 2, exclusive=False)
    assert (outcome.violations, outcome.begun, outcome.consumers_killed) == ([], 3, 1)
    # The item in flight is repeated after its consumer has ended.
    assert judge(["begin a 0", "end a 0", "killed a", "begin b 0", "end b 0"], 1, exclusive=True).violations == []


@pytest.mark.parametrize(
    ("lines", "items", "exclusive", "expected"),
    [
        (["begin a 0", "begin b 0", "end b 0"], 1, False, "b began 0 while a had it"),
        (SAFE, 3, False, "1 items were not handled, such as [2]"),
        (["begin a 0", "end a 0", "begin b 0", "end b 0"], 1, False, "1 items were handled again"),
        (["begin a 0", "killed a", "begin b 1", "end b 1"], 2, True, "1 items were not handled, such as [0]"),
        (["begin a 1", "end a 1", "begin a 0", "end a 0"], 2, True, "a began 1 after -1"),
        (["begin a 0", "begin a 1", "end a 0", "end a 1"], 2, True, "a began 1 while a consumer had [0]"),
    ],
)
def test_the_judge_finds_violations(lines: list[str], items: int, exclusive: bool, expected: str) -> None:
    assert expected in judge(lines, items, exclusive).violations
