"""The event journal of applied commands: every event with its fields, and no event that did not happen."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lmqcluster.core import Machine, Op
from lmqcluster.core.state import batch_leases
from lmqcluster.node.events import journal as event_journal
from lmqcluster.node.events.journal import EventJournal
from lmqcluster.wire.ids import ReceiptFormat
from tests.event_reader import read_events
from tests.property.driver import SECOND, compile_pattern, copied, numbers

Q, R = b"q", b"r"
SALT = b"0123456789"
IDS = ReceiptFormat(SALT)
PRODUCER = b"producer"
SPARK = b"spark"


class World:
    """A machine whose batches go through an event journal, of this node unless specified otherwise."""

    def __init__(self, folder: Path) -> None:
        self.machine = Machine(compile_pattern)
        self.now_us = 1_793_707_200 * SECOND
        self.journal = EventJournal(folder, "n1", bytes_max=1 << 20, files_max=2)
        self._folder = folder
        self._sequence: dict[bytes, int] = {}
        self.batch([Op.SET_SALT, SALT])

    def batch(self, *commands: list[Any], own: bool = True) -> list[Any]:
        origin = b"own" if own else b"other"
        sequence = self._sequence[origin] = self._sequence.get(origin, 0) + 1
        return self.send(origin, sequence, *commands, own=own)

    def send(self, origin: bytes, sequence: int, *commands: list[Any], own: bool = True) -> list[Any]:
        applied = self.machine.apply(self.now_us, origin, 1, sequence, list(commands))
        self.journal.batch_applied(self.machine, list(commands), applied, own=own)
        return applied.results

    def push(self, queue: bytes, *contents: bytes, own: bool = True) -> None:
        self.batch(plain(queue, *contents), own=own)

    def pull(self, queue: bytes, count: int = 1, *, own: bool = True) -> list[Any]:
        found: list[Any] = self.batch([Op.PULL, queue, count], own=own)[0]
        return found

    def reserve(self, epoch: int, source: bytes | list[bytes], count: int = 1, *, own: bool = True) -> None:
        self.batch([Op.RESERVE, SPARK, epoch, source, True, count, 60 * SECOND], own=own)

    def events(self, *names: str) -> list[dict[str, Any]]:
        """Return the written events, filtered by name if any is given, with only the queue and the event of
        the common fields.
        """
        self.journal.close()
        found = read_events(self._folder)
        assert {event.pop("node") for event in found} <= {"n1"}
        self.times = [event.pop("time") for event in found]
        return [event for event in found if not names or event["event"] in names]


def plain(queue: bytes, *contents: bytes) -> list[Any]:
    return [Op.PUSH, queue, None, list(contents), None, 0]


def produced(queue: bytes, first: int, *contents: bytes) -> list[Any]:
    return [Op.PUSH, queue, None, list(contents), PRODUCER, first]


def keyed(queue: bytes, *rows: tuple[bytes, bytes]) -> list[Any]:
    return [Op.PUSH_ROWS, queue, [[content, None, b"", key, []] for content, key in rows]]


def identity(number: int) -> str:
    return IDS.format(number).decode()


def pushed(queue: str, count: int, size: int, **more: int) -> dict[str, Any]:
    return {"event": "push", "queue": queue, "count": count, "bytes": size, **more}


def said(event: str, number: int, ok: bool, queue: str = "q") -> dict[str, Any]:
    return {"event": event, "queue": queue, "id": identity(number), "ok": ok}


def pull_event(
    number: int, sequence: int, wait_us: int, remaining: int = 2, again: bool = False, **more: Any
) -> dict[str, Any]:
    return {
        "event": "pull",
        "queue": "q",
        "id": identity(number),
        "sequence": sequence,
        "wait_us": wait_us,
        "retry_remaining": remaining,
        "redelivery": again,
        **more,
    }


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path / "deep" / "events")
    yield world
    world.journal.close()


def test_a_life_of_a_message(world: World) -> None:
    world.push(Q, b"12345")
    world.now_us += 7
    world.pull(Q)
    world.batch([Op.EXTEND, Q, [1]])
    world.batch([Op.NACK, Q, [1]])
    world.now_us += 11
    world.pull(Q)
    world.batch([Op.ACK, Q, [2]])
    world.batch([Op.ACK, Q, [2]])
    world.batch([Op.DELETE, Q])
    world.batch([Op.DELETE, Q])
    assert world.events() == [
        pushed("q", 1, 5),
        pull_event(1, 1, 7),
        said("extend", 1, True),
        said("nack", 1, True),
        pull_event(2, 1, 11, 1, True),
        said("ack", 2, True),
        said("ack", 2, False),
        {"event": "delete", "queue": "q", "ok": True},
        {"event": "delete", "queue": "q", "ok": False},
    ]
    assert world.times[:2] == ["2026-11-03T12:00:00.000000Z", "2026-11-03T12:00:00.000007Z"]


def test_events_have_log_time_and_not_the_stamp_of_the_batch(world: World) -> None:
    world.push(Q, b"a")
    world.now_us -= 5 * SECOND
    world.pull(Q)
    assert world.events("pull") == [pull_event(1, 1, 0)]
    assert world.times == ["2026-11-03T12:00:00.000000Z"] * 2


def test_actions_of_other_nodes_are_not_recorded(world: World) -> None:
    world.push(Q, b"a", b"b", own=False)
    world.pull(Q, own=False)
    world.batch([Op.ACK, Q, [1]], [Op.DELETE, R], own=False)
    world.pull(Q)
    assert world.events() == [pull_event(2, 2, 0)]


def test_an_expired_lease_shows_as_a_redelivery_due_since_then(world: World) -> None:
    world.push(Q, b"a")
    world.pull(Q)
    world.now_us += 30 * SECOND + 5
    world.batch([Op.ACK, Q, [1]])
    world.pull(Q)
    assert world.events("ack", "pull") == [pull_event(1, 1, 0), said("ack", 1, False), pull_event(2, 1, 5, 1, True)]


def test_a_delivery_that_was_put_back_does_not_count(world: World) -> None:
    world.push(Q, b"a")
    world.now_us += 3
    world.pull(Q)
    world.batch([Op.NACK, Q, [1], 1, 0, True])
    world.now_us += 4
    world.pull(Q)
    assert world.events("pull", "put_back") == [pull_event(1, 1, 3), said("put_back", 1, True), pull_event(2, 1, 7)]


def test_redelivery_follows_the_retry_of_the_queue(world: World) -> None:
    world.batch([Op.SET_PROPERTIES, Q, [["retry", 1]]])
    world.push(Q, b"a")
    for number in (1, 2):
        world.pull(Q)
        world.batch([Op.NACK, Q, [number]])
    assert world.pull(Q) == [], "dropped"
    assert world.events("pull") == [pull_event(1, 1, 0, 1), pull_event(2, 1, 0, 0, True)]


def test_a_pull_of_a_queue_that_the_same_batch_deletes(world: World) -> None:
    world.batch([Op.SET_DEFAULTS, [[b"q", [["retry", 0]]]]])
    world.push(Q, b"a")
    world.batch([Op.PULL, Q, 1], [Op.DELETE, Q])
    assert world.events("pull", "delete") == [pull_event(1, 1, 0, 0), {"event": "delete", "queue": "q", "ok": True}]


def test_purges_and_moves_have_lines_where_there_was_something(world: World) -> None:
    """A move is not a push, also in a batch with a push to the same queue."""
    world.push(Q, b"a", b"b", b"c")
    world.batch([Op.MOVE, Q, b"other", 2], [Op.PUSH, b"other", None, [b"new"], None, 0], [Op.PURGE, Q, 5])
    world.batch([Op.PURGE, Q, 5], [Op.MOVE, Q, b"other", 5], [Op.PURGE, b"absent", 5], [Op.SUSPEND, Q, True])
    assert world.events() == [
        pushed("q", 3, 3),
        pushed("other", 1, 3),
        {"event": "move", "queue": "q", "to": "other", "count": 2},
        {"event": "purge", "queue": "q", "count": 1},
    ]


def test_a_push_that_waited_has_its_line_at_the_node_whose_batch_made_room(world: World) -> None:
    def waiting(content: bytes) -> list[Any]:
        return [Op.PUSH_ROWS, Q, [[content, None, b"", None, []]], b"", None, 0, False, SECOND]

    world.batch([Op.SET_PROPERTIES, Q, [["max_items", 1]]])
    world.batch(waiting(b"1"))
    world.batch(waiting(b"22"), waiting(b"333"), own=False)
    world.batch(waiting(b"4444"))
    world.batch([Op.PULL, Q, 1])
    world.batch([Op.PULL, Q, 1], own=False)
    world.now_us += SECOND
    world.batch([Op.PULL, Q, 1])
    # The last one has waited too long.
    assert world.events("push") == [pushed("q", 1, 1), pushed("q", 1, 2)]


def test_leases_that_end_with_their_session_show_as_redeliveries(world: World) -> None:
    world.push(Q, b"a")
    (session,) = world.batch([Op.OPEN_SESSION, SECOND])
    world.batch([Op.PULL_IN_SESSION, Q, 1, 0, session, 1, -1])
    world.batch([Op.END_SESSION, session])
    assert world.machine.state.queues[Q].counters.redelivered_total == 1
    world.pull(Q)
    assert world.events("pull") == [pull_event(1, 1, 0), pull_event(2, 1, 0, 1, True)]


def test_features_beyond_lmq_are_recorded_too(world: World) -> None:
    labelled = [-1, 0, 0, 0, b"x", b""]
    world.batch([Op.SET_PROPERTIES, Q, [["max_items", 3]]])
    world.batch([Op.PUSH_ROWS, Q, [[b"a", None, b"", None, labelled], b"bc"]])
    world.batch(plain(Q, b"d", b"refused"))
    world.batch([Op.PULL, Q, 1, SECOND, False])
    world.batch([Op.EXTEND, Q, [1], SECOND], [Op.NACK, Q, [1], 0, -1], [Op.PURGE, Q, 1, b"x"])
    world.batch([Op.PULL, Q, 1])
    world.batch([Op.TRANSACTION, [[Op.ACK, Q, [2]], [Op.PUSH_ROWS, R, [[b"made", None, b"", None, []]]]]])
    world.batch([Op.TRANSACTION, [[Op.ACK, Q, [2]], [Op.PUSH_ROWS, R, [[b"not made", None, b"", None, []]]]]])
    assert world.events() == [
        pushed("q", 2, 3),
        pushed("q", 1, 1),
        pull_event(1, 1, 0),
        said("extend", 1, True),
        said("nack", 1, True),
        {"event": "withdraw", "queue": "q", "count": 1},
        pull_event(2, 2, 0),
        pushed("r", 1, 4),
        said("ack", 2, True),
    ]


def test_compound_messages(world: World) -> None:
    world.batch([Op.SET_PROPERTIES, Q, [["accum", 1000]]])
    world.push(Q, b"a", b"bc")
    world.push(Q, b"d")
    world.now_us += SECOND + 9
    world.pull(Q)
    assert world.events() == [
        pushed("q", 2, 3, windows=1),
        pushed("q", 1, 1, windows=0),
        pull_event(1, 1, 9, parts=3),
    ]


def test_pushes_of_one_batch_are_one_line_for_each_queue(world: World) -> None:
    world.batch(plain(Q, b"a", b"bb"), plain(R, b"c"), keyed(Q, (b"ddd", b"k1"), (b"", b"k2")))
    world.batch([Op.PUSH_EACH, [Q, R], [b"12", None, b"", None]])
    assert world.events() == [pushed("q", 4, 6), pushed("r", 1, 1), pushed("q", 1, 2), pushed("r", 1, 2)]


def test_a_repeated_push_of_a_producer_is_not_recorded_again(world: World) -> None:
    world.batch(produced(Q, 1, b"1", b"22"), own=False)
    world.batch(produced(Q, 1, b"1", b"22", b"333"), plain(R, b"4"))
    world.batch(produced(Q, 2, b"22", b"333"))
    assert world.events() == [pushed("q", 1, 3), pushed("r", 1, 1)]


def test_a_repeated_push_with_a_key_is_not_recorded_again(world: World) -> None:
    world.batch(keyed(Q, (b"1", b"k1"), (b"22", b"k2")))
    world.batch(keyed(Q, (b"1", b"k1"), (b"333", b"k3")))
    world.batch(keyed(Q, (b"1", b"k1")))
    assert world.events() == [pushed("q", 2, 3), pushed("q", 1, 3)]


def test_messages_of_a_snapshot_are_not_recorded_as_pushes(world: World) -> None:
    """Totals of queues count from the machine of the snapshot."""
    world.push(Q, b"1", b"2", own=False)
    world.machine = copied(world.machine)
    world.journal.begin(world.machine)
    world.push(Q, b"3")
    assert world.events() == [pushed("q", 1, 1)]


def test_a_recreated_queue_counts_from_zero(world: World) -> None:
    world.push(Q, b"1", b"2")
    world.batch([Op.DELETE, Q], plain(Q, b"3"))
    world.batch(plain(Q, b"4"), [Op.DELETE, Q], plain(Q, b"5", b"6"))
    assert world.events("push") == [pushed("q", 2, 2), pushed("q", 1, 1), pushed("q", 1, 1), pushed("q", 2, 2)]


def test_deleted_queues_are_forgotten(world: World) -> None:
    for number in range(3_000):
        world.batch(plain(b"%d" % number, b"x"), own=False)
        world.batch([Op.DELETE, b"%d" % number], own=False)
    assert len(world.journal._pushed_totals) <= 1_001
    world.push(Q, b"x")
    assert world.events() == [pushed("q", 1, 1)]


def test_a_batch_applied_twice_is_recorded_once(world: World) -> None:
    world.send(b"own2", 1, plain(Q, b"a"))
    world.send(b"own2", 1, plain(Q, b"a"))
    world.send(b"own2", 3, plain(Q, b"a"))
    assert world.events() == [pushed("q", 1, 1)]


def test_refused_and_empty_operations_are_not_events(world: World) -> None:
    world.batch([], ["what"], [Op.PUSH, Q, None, ["text"], None, 0])
    world.batch([Op.PULL, Q, 1], [Op.PULL_FIRST, [Q, R], 1], [Op.ACK, Q, []])
    world.batch([Op.BARRIER], [Op.SET_PROPERTIES, Q, [], False, True], [Op.UPGRADE, 1], plain(Q))
    world.push(Q, b"the end")
    assert world.events() == [pushed("q", 1, 7)]


def test_invalid_ids_and_missing_queues(world: World) -> None:
    world.push(Q, b"a")
    world.pull(Q)
    world.batch([Op.ACK, R, [1]], [Op.NACK, Q, [0, 1, 99]])
    assert world.events("ack", "nack") == [
        said("ack", 1, False, "r"),
        {"event": "nack", "queue": "q", "id": None, "ok": False},
        said("nack", 1, True),
        said("nack", 99, False),
    ]


def test_a_pull_of_any_queue_names_the_queue_it_came_from(world: World) -> None:
    world.push(Q, b"a")
    world.push(R, b"b")
    delivered = world.batch([Op.PULL_FIRST, [Q, R], 5])[0]
    assert numbers(delivered) == [1, 2]
    assert [(event["queue"], event["id"]) for event in world.events("pull")] == [
        ("q", identity(1)),
        ("r", identity(2)),
    ]


@pytest.mark.parametrize(
    ("name", "shown"),
    [(b'a"\\b', 'a"\\b'), ("ü\u2028".encode(), "ü\u2028"), (b"\xff!", "\\xff!"), (b"/x y", "/x y")],
)
def test_any_name_of_a_queue_is_a_line_of_json(world: World, name: bytes, shown: str) -> None:
    world.push(name, b"a")
    assert world.events() == [pushed(shown, 1, 1)]


def test_a_batch_lease_is_taken_and_settled(world: World) -> None:
    world.push(Q, b"a", b"b", b"c")
    world.now_us += 5
    world.reserve(1, Q, 2)
    world.reserve(1, Q, 2)
    world.batch([Op.RENEW, SPARK, 60 * SECOND])
    world.now_us += 5
    world.reserve(2, Q, 2)
    world.batch([Op.SETTLE_BATCHES, SPARK, 2])
    world.batch([Op.SETTLE_BATCHES, SPARK, 2])
    first, second = ({"subscription": "spark", "epoch": epoch} for epoch in (1, 2))
    assert world.events("pull", "ack") == [
        pull_event(1, 1, 5) | first,
        pull_event(2, 2, 5) | first,
        pull_event(3, 3, 10) | second,
        said("ack", 1, True) | first,
        said("ack", 2, True) | first,
        said("ack", 3, True) | second,
    ]


def test_a_batch_lease_that_grows_by_several_commands_of_any_node(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every node records what its own command added, from several queues."""
    monkeypatch.setattr(batch_leases, "STEP_MAX", 3)
    world.push(Q, b"a", b"b", b"c", b"d")
    world.push(R, b"e", b"f", b"g")
    world.reserve(1, [Q, R], 7, own=False)
    world.reserve(1, [Q, R], 7)
    world.reserve(1, [Q, R], 7, own=False)
    world.batch([Op.SETTLE_BATCHES, SPARK, 1])
    assert [(event["queue"], event["id"]) for event in world.events("pull")] == [
        ("q", identity(4)),
        ("r", identity(5)),
        ("r", identity(6)),
    ]
    acked = {event["id"]: event["queue"] for event in world.events("ack")}
    assert acked == {identity(number): "q" if number <= 4 else "r" for number in range(1, 8)}


def test_messages_of_an_expired_batch_are_recorded_one_by_one(world: World) -> None:
    world.push(Q, b"a", b"b", b"c")
    world.reserve(1, Q, 3)
    world.batch([Op.NACK, Q, [2]])
    world.batch([Op.ACK, Q, [3]])
    world.batch([Op.SETTLE_BATCHES, SPARK, 1])
    batch = {"subscription": "spark", "epoch": 1}
    assert world.events("ack")[1:] == [
        said("ack", 1, True) | batch,
        said("ack", 2, False) | batch,
        said("ack", 3, True) | batch,
    ]


def test_a_batch_of_a_queue_that_was_deleted_is_not_acknowledged(world: World) -> None:
    world.push(Q, b"a")
    world.reserve(1, Q)
    world.batch([Op.DELETE, Q])
    world.batch([Op.SETTLE_BATCHES, SPARK, 1])
    assert world.events("ack") == [said("ack", 1, False) | {"subscription": "spark", "epoch": 1}]


def test_an_abandoned_batch_is_put_back_step_by_step(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_leases, "STEP_MAX", 2)
    world.push(Q, b"a", b"b", b"c", b"d")
    world.reserve(1, Q, 2)
    world.reserve(2, Q, 2)
    world.batch([Op.ACK, Q, [2]])
    world.batch([Op.ABANDON_BATCHES, SPARK])
    world.batch([Op.ABANDON_BATCHES, SPARK])
    world.reserve(1, Q, 1)
    first, second = ({"subscription": "spark", "epoch": epoch} for epoch in (1, 2))
    assert world.events("put_back", "pull")[4:] == [
        said("put_back", 3, True) | second,
        said("put_back", 4, True) | second,
        said("put_back", 1, True) | first,
        said("put_back", 2, False) | first,
        pull_event(5, 1, 0) | first,
    ]


def test_a_batch_lease_of_a_snapshot_is_known(world: World) -> None:
    world.push(Q, b"a", b"b")
    world.reserve(1, Q, 1, own=False)
    world.machine = copied(world.machine)
    world.journal.begin(world.machine)
    world.batch([Op.SETTLE_BATCHES, SPARK, 1])
    assert world.events("pull", "ack") == [said("ack", 1, True) | {"subscription": "spark", "epoch": 1}]


def test_an_epoch_that_is_abandoned_and_reserved_again_by_one_batch(world: World) -> None:
    world.push(Q, b"a")
    world.reserve(1, Q)
    world.batch([Op.ABANDON_BATCHES, SPARK], [Op.RESERVE, SPARK, 1, Q, True, 1, 60 * SECOND])
    assert [(event["event"], event["id"]) for event in world.events("pull", "put_back")] == [
        ("pull", identity(1)),
        ("pull", identity(2)),
        ("put_back", identity(1)),
    ]


def test_reservations_that_find_nothing_or_are_refused(world: World) -> None:
    world.reserve(1, Q)
    world.reserve(0, Q)
    world.batch([Op.RESERVE, [], 1, Q, False, 1, 1], [Op.SETTLE_BATCHES, SPARK, -1], [Op.ABANDON_BATCHES, {}])
    world.batch([Op.RESERVE, [], 1, Q, False, 1, 1], [], own=False)
    world.batch([Op.ABANDON_BATCHES, SPARK], [Op.SETTLE_BATCHES, SPARK, 1])
    assert world.events() == []


def test_every_field_is_documented_and_no_other(world: World) -> None:
    """The module's documentation lists the fields as they are written."""
    world.batch([Op.SET_PROPERTIES, Q, [["accum", 1000]]])
    world.push(Q, b"a")
    world.now_us += SECOND
    world.pull(Q)
    world.batch([Op.ACK, Q, [1]])
    world.batch([Op.DELETE, Q])
    world.push(Q, b"a")
    world.now_us += SECOND
    world.reserve(1, Q)
    world.push(Q, b"a")
    world.now_us += SECOND
    world.batch([Op.MOVE, Q, b"other", 1])
    heads = [line.split(":")[0] for line in (event_journal.__doc__ or "").splitlines() if line.startswith("- ``")]
    documented = {field for head in heads for field in head.split("``")[1::2]}
    written = {field for event in world.events() for field in event} | {"time", "node"}
    assert written == documented


def test_an_error_about_the_folder_names_the_option(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(OSError, match="event_journal: the folder cannot be made"):
        EventJournal(tmp_path / "file" / "events", "n1", bytes_max=1 << 20, files_max=2)


def test_lines_are_json_of_one_line_each(world: World, tmp_path: Path) -> None:
    """Text that is not ASCII is escaped, so that no reader takes a part of a name for the end of a line."""
    import gzip

    world.push("\u2028\u0085".encode(), b"a")
    world.journal.close()
    (path,) = (tmp_path / "deep" / "events").iterdir()
    text = gzip.decompress(path.read_bytes()).decode("ascii")
    assert len(text.splitlines()) == 1
    assert json.loads(text)["queue"] == "\u2028\u0085"
