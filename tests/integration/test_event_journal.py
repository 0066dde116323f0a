"""The event journals of real nodes: every event exactly once, and readable after any failure of a node."""

from __future__ import annotations

import re
import signal
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from lmqcluster_cli.lmq.local_cluster import DevNode, DevSettings

from lmqcluster.client import Client
from tests.event_reader import files_of, read_events, read_file

from .cluster import Cluster, NodeProcess, fetch, wait_for
from .programs import run
from .raw_http import call
from .raw_rpc import Rpc, request

Events = list[dict[str, Any]]


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """The folder that all nodes of a test share."""
    return tmp_path / "events"


@pytest.fixture
def watched(tmp_path: Path, journal: Path) -> Iterator[NodeProcess]:
    """A node for one test with an event journal."""
    with NodeProcess(tmp_path, arguments=("--event-journal", str(journal))) as node:
        yield node


@pytest.fixture
def watched_cluster(tmp_path: Path, journal: Path) -> Iterator[Cluster]:
    """Three nodes for one test whose event journals share a folder."""
    with Cluster(3, directory=tmp_path, arguments=("--event-journal", str(journal))) as nodes:
        yield nodes


def stop(*nodes: NodeProcess) -> None:
    """Stop nodes in order, which writes their remaining events."""
    for node in nodes:
        node.signal(signal.SIGTERM)
    for node in nodes:
        assert node.wait_exit() == 0, node.log_tail()


def of(events: Events, *names: str) -> Events:
    return [event for event in events if event["event"] in names]


def metric(node: NodeProcess, name: str) -> float | None:
    """Return the value of a metric, None if the node has no such metric."""
    found = re.search(rf"^{name} (\S+)$", fetch(node.http, "/metrics")[1].decode(), re.MULTILINE)
    return float(found[1]) if found else None


def test_the_life_of_messages_at_one_node(watched: NodeProcess, journal: Path) -> None:
    """Over both interfaces, with ids as the client sees them."""
    with Client(watched.rpc) as client:
        client.update_props("jobs", {"retry": 1})
        client.push_many("jobs", [b"one", b"three"])
        assert call(watched.http, "POST", "/messages/jobs", b"four").status == 200
        first, second = client.pull_many("jobs", 2)
        assert first.extend()
        assert first.ack()
        assert second.nack()
        third = client.pull("jobs", 5)
        fourth = client.pull("jobs", 5)
        assert third is not None
        assert fourth is not None
        assert third.put_back()
        assert fourth.ack()
        client.delete("jobs")
    stop(watched)
    events = read_events(journal)
    assert {event["queue"] for event in events} == {"jobs"}
    assert {event["node"] for event in events} == {"n1"}
    assert [event["time"] for event in events] == sorted(event["time"] for event in events)
    pushes = of(events, "push")
    assert (sum(event["count"] for event in pushes), sum(event["bytes"] for event in pushes)) == (3, 14)
    pulls = [
        (event["id"], event["sequence"], event["retry_remaining"], event["redelivery"]) for event in of(events, "pull")
    ]
    ids = [message.id for message in (first, second, third, fourth)]
    assert pulls == [(ids[0], 1, 1, False), (ids[1], 2, 1, False), (ids[2], 3, 1, False), (ids[3], 2, 0, True)]
    assert [
        (event["event"], event["id"], event["ok"]) for event in of(events, "ack", "nack", "extend", "put_back")
    ] == [
        ("extend", ids[0], True),
        ("ack", ids[0], True),
        ("nack", ids[1], True),
        ("put_back", ids[2], True),
        ("ack", ids[3], True),
    ]
    assert [event["ok"] for event in of(events, "delete")] == [True]


def test_metrics_count_and_a_node_without_a_journal_has_none(node: NodeProcess, watched: NodeProcess) -> None:
    assert metric(watched, "lmq_events_written_total") == 0
    call(watched.http, "POST", "/messages/q", b"x")
    wait_for(lambda: metric(watched, "lmq_events_written_total") == 1, "the event is written within a second")
    assert metric(watched, "lmq_events_dropped_total") == 0
    assert metric(watched, "lmq_event_journal_errors_total") == 0
    assert metric(node, "lmq_events_written_total") is None


def work_through(clients: Sequence[Client]) -> Counter[tuple[str, bool]]:
    """Push, pull and settle 300 messages, each step through another node than the last; every third is nacked once.

    Returns:
        The number of answers per kind of settlement, and whether it took effect.
    """
    said: Counter[tuple[str, bool]] = Counter()

    def settle(turn: int, ids: list[str], nacked: list[str]) -> None:
        second, third = clients[(turn + 1) % 3], clients[(turn + 2) % 3]
        acked = [one for one in ids if one not in nacked]
        said.update(("extend", ok) for ok in second.retain_many("work", ids[:5]))
        said.update(("nack", ok) for ok in third.release_many("work", nacked))
        said.update(("ack", ok) for ok in second.done_many("work", acked))
        said.update(("ack", ok) for ok in third.done_many("work", acked[:1]))

    for turn, client in enumerate(clients):
        client.push_many("work", [b"%d-%d" % (turn, k) for k in range(100)])
    for turn, client in enumerate(clients):
        ids = [message.id for message in client.pull_many("work", 100)]
        settle(turn, ids, ids[::3])
    for turn, client in enumerate(clients):
        settle(turn, [message.id for message in client.pull_many("work", 34)], [])
    return said


def test_every_event_is_in_exactly_one_of_three_journals(watched_cluster: Cluster, journal: Path) -> None:
    with ExitStack() as stack:
        said = work_through([stack.enter_context(Client(node.rpc)) for node in watched_cluster])
    assert said == {("extend", True): 30, ("nack", True): 102, ("ack", True): 300, ("ack", False): 6}
    stop(*watched_cluster)
    by_node = {node.name: read_events(journal, node.name) for node in watched_cluster}
    events = read_events(journal)
    assert len(events) == sum(map(len, by_node.values()))
    for name, own in by_node.items():
        assert {event["node"] for event in own} == {name}
        assert sum(event["count"] for event in of(own, "push")) == 100
        assert len(of(own, "pull")) == 134
    pulls = of(events, "pull")
    assert len({event["id"] for event in pulls}) == len(pulls) == 402
    assert Counter(Counter(event["sequence"] for event in pulls).values()) == {1: 198, 2: 102}
    assert Counter(event["redelivery"] for event in pulls) == {False: 300, True: 102}
    assert Counter((event["event"], event["ok"]) for event in of(events, "ack", "nack", "extend")) == said
    # Joining the journals gives the outcome of each delivery.
    outcome = Counter(event["id"] for event in of(events, "ack", "nack") if event["ok"])
    assert outcome == dict.fromkeys((event["id"] for event in pulls), 1)


def test_a_lease_expiry_is_recorded_by_the_node_that_redelivers(watched_cluster: Cluster, journal: Path) -> None:
    """The client of the first node answers too late, through the third."""
    with ExitStack() as stack:
        one, two, three = (stack.enter_context(Client(node.rpc)) for node in watched_cluster)
        one.update_props("short", {"timeout": 0.2})
        one.push("short", b"x")
        first = one.pull("short", 10)
        again = two.pull("short", 30)
        assert first is not None
        assert again is not None
        assert three.done("short", first.id) is False
    stop(*watched_cluster)
    pulls = of(read_events(journal), "pull")
    assert [(event["node"], event["id"], event["redelivery"]) for event in pulls if event["id"] == first.id] == [
        ("n1", first.id, False)
    ]
    assert [(event["node"], event["id"], event["redelivery"]) for event in pulls if event["id"] == again.id] == [
        ("n2", again.id, True)
    ]
    assert len({event["sequence"] for event in pulls}) == 1
    (late,) = of(read_events(journal, "n3"), "ack")
    assert (late["id"], late["ok"]) == (first.id, False)


def test_undelivered_messages_of_a_closed_connection_are_returned(watched_cluster: Cluster, journal: Path) -> None:
    """The node's own commands are recorded too. A message in an answer written before the node noticed the close comes
    back by itself.
    """
    taker, pusher = watched_cluster[0], watched_cluster[1]
    with Client(pusher.rpc) as client:
        client.push_many("work", [b"x"] * 20)
        for _ in range(20):
            with Rpc(taker.rpc) as gone:
                gone.send(request(1, "pull", "work", 60))
                gone.abort()
        got: list[str] = []
        while len(got) < 20:
            message = client.pull("work", 60)
            assert message is not None
            assert message.ack()
            got.append(message.id)
    stop(*watched_cluster)
    pulled, back, acked = (
        {event["id"] for event in of(read_events(journal), name)} for name in ("pull", "put_back", "ack")
    )
    assert back
    assert back | acked <= pulled
    assert acked == set(got)
    assert back <= {event["id"] for event in read_events(journal, taker.name)}


def test_batch_leases_are_recorded_by_the_nodes_that_reserved_and_settled_them(
    watched_cluster: Cluster, journal: Path
) -> None:
    """Reserved through one node, settled and abandoned through others."""
    with ExitStack() as stack:
        one, two, three = (stack.enter_context(Client(node.rpc)) for node in watched_cluster)
        one.push_many("work", [b"x"] * 300)
        one.reserve_batch("spark", 1, queue="work", count=200)
        two.reserve_batch("spark", 2, queue="work", count=200)
        two.settle_batches("spark", 1)
        three.abandon_batches("spark")
    stop(*watched_cluster)
    events = [event for event in read_events(journal) if "epoch" in event]
    assert {event["subscription"] for event in events} == {"spark"}
    assert Counter((event["node"], event["event"], event["epoch"], event.get("ok")) for event in events) == {
        ("n1", "pull", 1, None): 200,
        ("n2", "pull", 2, None): 100,
        ("n2", "ack", 1, True): 200,
        ("n3", "put_back", 2, True): 100,
    }
    for epoch in (1, 2):
        pulled, ended = (
            {event["id"] for event in of(events, *names) if event["epoch"] == epoch}
            for names in (("pull",), ("ack", "put_back"))
        )
        assert pulled == ended


def test_a_push_repeated_at_another_node_is_recorded_once(watched_cluster: Cluster, journal: Path) -> None:
    """A busy client's node is paused until the client has moved to another, and records the outcome of its
    requests later.
    """
    nodes = {_pair(node.rpc): node for node in watched_cluster}
    ended = threading.Event()
    with Client([node.rpc for node in watched_cluster], heartbeat_s=1.0) as client:
        count = 0

        def push() -> None:
            nonlocal count
            while not ended.is_set():
                client.push_many("work", [b"%d" % count] * 100)
                count += 100

        pusher = threading.Thread(target=push)
        pusher.start()
        try:
            for _ in range(2):
                before, reached = wait_for(lambda: client.address, "a connection"), count
                wait_for(lambda reached=reached: count > reached + 1000, "pushes")  # type: ignore[misc]
                with paused(nodes[before]):
                    wait_for(lambda before=before: client.address not in (None, before), "a connection to another node")  # type: ignore[misc]
        finally:
            ended.set()
            pusher.join()
    wait_for(lambda: metric(watched_cluster[0], "lmq_messages_pushed_total") >= count, "all pushes at the node")  # type: ignore[operator]
    assert metric(watched_cluster[0], "lmq_messages_pushed_total") == count
    stop(*watched_cluster)
    assert sum(event["count"] for event in of(read_events(journal), "push")) == count
    assert len({event["node"] for event in of(read_events(journal), "push")}) > 1


@contextmanager
def paused(node: NodeProcess) -> Iterator[None]:
    """Pause the node during the block."""
    node.pause()
    try:
        yield
    finally:
        node.resume()


def _pair(address: str) -> tuple[str, int]:
    host, port = address.rsplit(":", 1)
    return host, int(port)


def test_kill_9_leaves_a_readable_journal(watched: NodeProcess, journal: Path) -> None:
    """Events counted in a metric can be read, and the restarted node leaves only intact files."""
    for turn in range(1, 4):
        with Client(watched.rpc) as client:
            for _ in range(20):
                client.push_many("work", [b"x" * 50] * 100)
                client.done_many("work", [message.id for message in client.pull_many("work", 100)])
            written = wait_for(lambda: metric(watched, "lmq_events_written_total"), "events are written")
            client.push_many("work", [b"y"] * 5000)
            watched.kill()
        assert len(files_of(journal)) == turn
        # A kill during a write leaves a truncated member; this call always does.
        assert len(read_file(files_of(journal)[-1], cut=True)) >= written
        with files_of(journal)[-1].open("ab") as file:
            file.write(b"\x1f\x8b\x08")
        watched.start()
        wait_for(lambda: "truncated end of the event journal removed" in watched.log(), "the file is mended")
    stop(watched)
    events = read_events(journal)
    names = Counter(event["id"] for event in of(events, "pull"))
    assert set(names.values()) == {1}


def test_a_journal_that_cannot_be_written_does_not_stop_the_node(watched: NodeProcess, journal: Path) -> None:
    """The folder is removed and restored: one line in the log, a metric, and nothing lost."""
    away = journal.with_name("away")
    journal.rename(away)
    for _ in range(3):
        assert call(watched.http, "POST", "/messages/q", b"x").status == 200
    wait_for(lambda: metric(watched, "lmq_event_journal_errors_total"), "an attempt fails")
    assert call(watched.http, "POST", "/messages/q", b"x").status == 200
    assert fetch(watched.http, "/readyz")[0] == 200
    away.rename(journal)
    wait_for(lambda: metric(watched, "lmq_events_written_total") == 4, "it is tried again")
    assert metric(watched, "lmq_events_dropped_total") == 0
    stop(watched)
    assert [event["count"] for event in read_events(journal)] == [1, 1, 1, 1]
    assert watched.log().count("the event journal cannot be written") == 1


def test_files_are_bounded(tmp_path: Path, journal: Path) -> None:
    arguments = (
        "--event-journal",
        str(journal),
        "--event-journal-bytes-max",
        "64KiB",
        "--event-journal-files-max",
        "2",
    )
    with NodeProcess(tmp_path, arguments=arguments) as node, Client(node.rpc) as client:
        seen: set[Path] = set()
        while len(seen) < 4:
            client.push_many("q", [b""] * 5000)
            client.done_many("q", [message.id for message in client.pull_many("q", 5000)])
            seen.update(files_of(journal))
            assert len(files_of(journal)) <= 3, "two, and one while the oldest is being deleted"
        client.close()
        stop(node)
    assert len(files_of(journal)) <= 2
    assert all(path.stat().st_size <= 64 * 1024 for path in files_of(journal))
    assert read_events(journal)


def test_a_folder_that_cannot_be_created_prevents_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    node = NodeProcess(tmp_path, arguments=("--event-journal", str(tmp_path / "file" / "events")))
    node.start(wait=False)
    assert node.wait_exit() == 78
    assert "event_journal: the folder cannot be made" in node.log()


def test_dev_nodes_share_one_folder(tmp_path: Path) -> None:
    settings = DevSettings(nodes=3, data_dir=tmp_path, offset=0, respawn=False, event_journal=tmp_path / "events")
    for index in range(3):
        arguments = DevNode(index, settings).arguments("peers")
        place = arguments.index("--event-journal")
        assert arguments[place + 1] == str(tmp_path / "events")
    without = DevSettings(nodes=3, data_dir=tmp_path, offset=0, respawn=False)
    assert "--event-journal" not in DevNode(0, without).arguments("peers")
    assert "--event-journal" in run("lmq", "dev", "--help").out


def test_the_option_is_shown() -> None:
    assert "event_journal\toff" in run("lmq", "config", "show").out
