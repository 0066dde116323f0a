"""Dead letters: shown, edited and redriven exactly once under kills, with all others unchanged."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from lmqcluster import Client, LmqError
from lmqcluster.spark.pipelines import dead_letters as dead_letters_module
from lmqcluster.spark.pipelines.base.access import Access
from lmqcluster.spark.pipelines.base.failures import BAD_DATA, USAGE, PipelineError
from lmqcluster.spark.pipelines.dead_letters import (
    DeadLetters,
    Edits,
    Redriven,
    letters,
    preview,
    redrive,
    store,
    summary,
)
from lmqcluster.spark.writing import moving
from lmqcluster.wire.attributes import Attributes

from .queues import numbered, pulled


class Letters:
    """A queue whose messages all fail, and its dead-letter queue."""

    def __init__(self, client: Client, servers: str, name: str) -> None:
        self.client = client
        self.access = Access(servers=servers)
        self.source, self.dead = name, f"{name}.dead"
        client.update_props(name, {"retry": 0, "dead_letter_queue": self.dead})

    def fail(self, contents: list[Any], **options: Any) -> None:
        """Make messages fail."""
        for content in contents:
            self.client.push(self.source, content, **options)
        failed = self.client.pull_many(self.source, len(contents), 30)
        assert len(failed) == len(contents)
        for message in failed:
            assert message.nack()

    def wanted(self, where: str | None = None) -> DeadLetters:
        """Return the settings."""
        return DeadLetters(access=self.access, queues=[self.dead], where=where)


@pytest.fixture
def dead(client: Client, servers: str, queue: str) -> Letters:
    """An empty queue with a dead-letter queue."""
    return Letters(client, servers, queue)


def test_dead_letters_are_shown_by_queue_and_hour_and_kept(
    spark: SparkSession, client: Client, dead: Letters, tmp_path: Path
) -> None:
    for number, content in enumerate(numbered(3)):
        dead.fail([content], label="order", group=f"g{number}")
    client.push(dead.dead, b"\xff not of the cluster")
    found = letters(spark, dead.wanted())
    failed, pushed = sorted(summary(found, 10), key=lambda row: row["messages"], reverse=True)
    assert (failed["origin"], failed["reason"], failed["messages"], failed["deliveries_max"]) == (
        dead.source, "exhausted", 3, 1,
    )  # fmt: skip
    assert (pushed["origin"], pushed["reason"], pushed["messages"]) == (None, None, 1)
    assert time.strftime("%Y-%m-%dT%H", time.gmtime(time.time() - 3000)) <= failed["hour"][:13]
    for form in ("parquet", "json"):
        output = tmp_path / form
        store(found, str(output), form)
        rows = spark.read.format(form).load(str(output)).orderBy("offset").collect()
        assert [row["text"] for row in rows] == ["m-000000", "m-000001", "m-000002", None]
        assert [(row["label"], row["group"]) for row in rows[:3]] == [("order", f"g{number}") for number in range(3)]
        with pytest.raises(PipelineError, match="already exists"):
            store(found, str(output), form)
    assert len(pulled(client, dead.dead)) == 4


def test_selected_letters_are_redriven_edited_and_the_others_keep_their_positions(
    spark: SparkSession, client: Client, dead: Letters
) -> None:
    dead.fail([b"a-%d" % number for number in range(10)], priority=3, label="l")
    client.push(dead.dead, b"a-9 by a client")
    client.update_props(dead.source, {"retry": 5})
    edits = Edits(values={"value": "concat(text, '!')", "label": "null", "priority": "priority + 1", "group": "text"})
    where = "cast(substring(text, 3, 1) as int) % 3 = 0"
    expected = Redriven(dead.dead, 5, 4, 1, 0, 7)
    done, samples = preview(spark, dead.wanted(where), edits)
    assert done == [expected]
    assert [(one.before, one.after, one.to) for one in samples[:2]] == [
        ("a-0", "a-0!", dead.source), ("a-3", "a-3!", dead.source),
    ]  # fmt: skip
    assert client.backlog(queue=dead.dead).messages == 11, "a preview takes nothing"

    assert redrive(spark, dead.wanted(where), edits, dead.dead) == expected
    sent = client.pull_many(dead.source, 100, 0)
    assert [one.content for one in sent] == [b"a-0!", b"a-3!", b"a-6!", b"a-9!"]
    assert {(one.priority, one.label) for one in sent} == {(4, None)}
    assert [one.group for one in sent] == ["a-0", "a-3", "a-6", "a-9"]
    assert all(one.ack() for one in sent)
    # In their old order and position, as if they had never been delivered.
    left = client.pull_many(dead.dead, 100, 0)
    assert [one.content for one in left] == [b"a-9 by a client", *(b"a-%d" % number for number in (1, 2, 4, 5, 7, 8))]
    assert {one.delivery for one in left if one.origin} == {1}
    assert client.subscription(f"dead-letters/{dead.dead}") is None
    assert redrive(spark, dead.wanted(where), edits, dead.dead) == Redriven(dead.dead, 0, 0, 0, 0, 0)


def test_types_and_attributes_stay_and_another_queue_can_be_named(
    spark: SparkSession, client: Client, dead: Letters, new_queue: Callable[[], str]
) -> None:
    to = new_queue()
    attributes: Attributes = {"why": "because", "n": 1, "share": 0.5, "raw": b"\xff"}
    client.push_many(
        dead.source, [b"a,b"], keys=["k"], content_types=["text/csv"], options=[{"attributes": attributes}]
    )
    client.push(dead.source, {"of": "msgpack"})
    for failed in client.pull_many(dead.source, 2, 30):
        assert failed.nack()
    assert redrive(spark, dead.wanted(), Edits(to=to, values={}), dead.dead).moved == 2
    found = client.pull_many(to, 2, 0)
    assert [one.content for one in found] == [b"a,b", {b"of": b"msgpack"}]
    assert [one.attributes for one in found] == [attributes, {}]


def test_attributes_are_edited(spark: SparkSession, client: Client, dead: Letters) -> None:
    attributes: Attributes = {"n": 1, "secret": "x", "raw": b"\xff"}
    cases: list[tuple[dict[str, str], Attributes]] = [
        ({"attributes": "map_filter(attributes, (name, value) -> name <> 'secret')"}, {"n": 1, "raw": b"\xff"}),
        ({"attributes": "map('n', 7)"}, {"n": 7}),
        ({"attributes": "map('raw', encode(text, 'utf-8'))"}, {"raw": b"m-000000"}),
        ({"attributes": "map('n', text)", "attribute_types": "null"}, {"n": "m-000000"}),
        ({"attributes": "null"}, {}),
    ]
    for values, wanted in cases:
        dead.fail(numbered(1), attributes=attributes)
        assert redrive(spark, dead.wanted(), Edits(values=values), dead.dead).moved == 1
        [message] = client.pull_many(dead.source, 10, 0)
        assert message.attributes == wanted, values
        assert message.ack()


def die_after(transactions: int) -> Callable[..., None]:
    """Replace a transaction by one after which the process dies before it learns the result."""
    transact, done = moving._transact, [0]

    def transact_and_die(*arguments: Any) -> None:
        transact(*arguments)
        done[0] += 1
        if done[0] == transactions:
            raise KeyboardInterrupt

    return transact_and_die


def moves(dead: Letters, spark: SparkSession) -> Any:
    """The rows that `redrive` passes to the mover, as one batch, under leases that a killed process leaves behind."""
    from lmqcluster.spark.pipelines.dead_letters import _describe, _edit, _subscription
    from lmqcluster.spark.reading.leased_queue import LeasedQueue

    options = dead.access.options() | {"subscribe": dead.dead, "includeAttributes": "true", "includeDelivery": "true"}
    leased = LeasedQueue(options, _subscription(dead.dead)).__enter__()
    rows = _edit(_describe(leased.rows(spark)), Edits(values={}))
    batch = rows.orderBy("offset").drop("offset", "problem").toArrow().to_batches()
    leased._keeper.close()
    return leased._options.connection, batch


def test_a_job_that_is_killed_between_two_steps_loses_and_duplicates_nothing(
    spark: SparkSession, client: Client, dead: Letters, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead.fail(numbered(30))
    monkeypatch.setattr(moving, "_MOVES_MAX", 5)
    connection, batches = moves(dead, spark)
    with monkeypatch.context() as patched:
        patched.setattr(moving, "_transact", die_after(3))
        with pytest.raises(KeyboardInterrupt):
            list(moving.mover(connection)(iter(batches)))
    # A repetition of the task moves only the remaining messages.
    [counts] = moving.mover(connection)(iter(batches))
    assert counts.to_pylist() == [{"moved": 15, "gone": 15}]
    assert pulled(client, dead.source) == numbered(30)

    dead.fail(numbered(30, "n"))
    connection, batches = moves(dead, spark)
    with monkeypatch.context() as patched:
        patched.setattr(moving, "_transact", die_after(2))
        with pytest.raises(KeyboardInterrupt):
            list(moving.mover(connection)(iter(batches)))
    # The next run of the command does not wait for the leases of the killed one, whose tasks are fenced.
    assert redrive(spark, dead.wanted(), Edits(values={}), dead.dead).moved == 20
    [counts] = moving.mover(connection)(iter(batches))
    assert counts.to_pylist() == [{"moved": 0, "gone": 30}]
    assert pulled(client, dead.source) == numbered(30, "n")


def test_a_full_queue_stops_the_job_and_nothing_is_lost(spark: SparkSession, client: Client, dead: Letters) -> None:
    dead.fail(numbered(10))
    client.update_props(dead.source, {"max_items": 4})
    with pytest.raises(PySparkException, match="full"):
        redrive(spark, dead.wanted(), Edits(values={}), dead.dead)
    assert client.backlog(queue=dead.dead).messages == 10
    client.update_props(dead.source, {"max_items": 10})
    assert redrive(spark, dead.wanted(), Edits(values={}), dead.dead).moved == 10
    assert pulled(client, dead.source) == numbered(10)


BAD = {
    "not SQL": ("offset >", {}, USAGE, "--where 'offset >'"),
    "no condition": ("offset + 1", {}, USAGE, "--where"),
    "no such column": ("colour = 'red'", {}, USAGE, "colour"),
    "an aggregate": ("count(*) > 1", {}, USAGE, "--where"),
    "several rows of one message": (None, {"value": "explode(array(text, text))"}, USAGE, "--set value"),
    "an aggregate to send": (None, {"value": "max(text)"}, USAGE, "--set value"),
    "not SQL to send": (None, {"value": "text ||"}, USAGE, "--set value"),
    "another type": (None, {"value": "array(text)"}, USAGE, "column 'value' must be"),
    "no value": (None, {"value": "nullif(text, 'm-000001')"}, BAD_DATA, "its value is null; nothing was sent"),
    "a label too long": (None, {"label": "repeat(text, 100)"}, BAD_DATA, "its label must have 1 to 255 bytes"),
    "a type too long": (None, {"content_type": "repeat('x', 5000)"}, BAD_DATA, "its content type"),
    "a time that is none": (None, {"delay": "double('NaN')"}, BAD_DATA, "its delay"),
    "a priority too large": (None, {"priority": "bigint(1) << 40"}, BAD_DATA, "its priority"),
    "a message too large": (None, {"value": "repeat('x', 5000)"}, BAD_DATA, "its value has more than 4000 bytes"),
    "attributes of another type": (None, {"attributes": "map('a', true)"}, USAGE, "column 'attributes' must be"),
    "a number that is none": (
        None,
        {"attributes": "map('n', text)", "attribute_types": "map('n', 'integer')"},
        BAD_DATA,
        "the attribute 'n' is not an integer: 'm-000000'; nothing was sent",
    ),
    "too many attributes": (
        None,
        {"attributes": "map_from_arrays(transform(sequence(0, 64), n -> string(n)), array_repeat(text, 65))"},
        BAD_DATA,
        "at most 64 attributes, not 65",
    ),
    "an error in a value": ("cast(text as int) > 1", {}, BAD_DATA, "--where or --set fails"),
    "an error in a value to send": (None, {"priority": "int(text)"}, BAD_DATA, "--where or --set fails"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_sql_and_values_that_cannot_be_sent_move_nothing(
    spark: SparkSession, client: Client, dead: Letters, case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A message of 64 MiB takes more memory than this session has.
    monkeypatch.setattr(dead_letters_module, "MESSAGE_BYTES_MAX", 4000)
    where, values, code, text = BAD[case]
    dead.fail(numbered(2))
    with pytest.raises(PipelineError) as raised:
        redrive(spark, dead.wanted(where), Edits(values=values), dead.dead)
    assert text in str(raised.value)
    assert raised.value.exit_code == code
    assert len(str(raised.value)) < 1200
    assert pulled(client, dead.dead) == numbered(2)
    assert client.backlog(queue=dead.source).messages == 0


def test_a_queue_is_not_its_own_target_and_needs_a_readable_name(spark: SparkSession, dead: Letters) -> None:
    with pytest.raises(PipelineError, match="that they are in"):
        redrive(spark, dead.wanted(), Edits(to=dead.dead, values={}), dead.dead)
    for name in ("a,b", " a", ""):
        with pytest.raises(PipelineError, match="cannot be read"):
            redrive(spark, dead.wanted(), Edits(values={}), name)


def test_a_second_job_takes_over(spark: SparkSession, client: Client, dead: Letters) -> None:
    dead.fail(numbered(4))
    connection, batches = moves(dead, spark)
    before = client.subscription(f"dead-letters/{dead.dead}")
    assert before is not None
    assert redrive(spark, dead.wanted("offset < 0"), Edits(values={}), dead.dead).kept == 4
    [counts] = moving.mover(connection)(iter(batches))
    assert counts.to_pylist() == [{"moved": 0, "gone": 4}]
    with pytest.raises(LmqError, match=r"taken over|not known"):
        client.renew_batches(f"dead-letters/{dead.dead}", 60, session=before["session"])
    assert pulled(client, dead.dead) == numbered(4)
