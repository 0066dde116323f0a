"""Options of the data source: names, defaults, ranges, and errors that name the option."""

from __future__ import annotations

import pickle

import pytest

from lmqcluster.spark.errors import OptionError
from lmqcluster.spark.options import (
    OPTIONS,
    BatchRead,
    Connection,
    Operation,
    Selection,
    StreamRead,
    Write,
    check_common,
)

READ = {"lmq.servers": "n1:18800,n2:18810", "subscribe": "jobs"}
WRITE = {"lmq.servers": "n1:18800"}


def test_defaults_of_a_streaming_read() -> None:
    options = StreamRead.parse(READ)
    assert options == StreamRead(
        connection=Connection("n1:18800,n2:18810", timeout_s=60, connect_timeout_s=2),
        selection=Selection("jobs", None),
        include_headers=False,
        explode=False,
        partitions_min=1,
        fail_on_data_loss=True,
        lease_s=86400,
        subscription=None,
        messages_max=100_000,
    )


def test_defaults_of_a_batch_read() -> None:
    options = BatchRead.parse(READ)
    assert (options.mode, options.lease_s) == ("peek", 3600)


def test_defaults_of_a_write() -> None:
    options = Write.parse(WRITE)
    assert (options.queue, options.push_count, options.push_bytes, options.write_id) == (None, 4000, 1 << 20, None)


@pytest.mark.parametrize("operation", [StreamRead, BatchRead, Write])
def test_the_reference_tells_the_true_defaults(operation: type[StreamRead | BatchRead | Write]) -> None:
    kind = {StreamRead: Operation.STREAM_READ, BatchRead: Operation.BATCH_READ, Write: Operation.WRITE}[operation]
    given = dict(WRITE if operation is Write else READ)
    documented = {option.name: option.default for option in OPTIONS if option.default and kind in option.used_by}
    if operation is BatchRead:
        documented["lmq.lease"] = "3600"
    assert operation.parse({**documented, **given}) == operation.parse(given)


def test_every_name_is_case_insensitive() -> None:
    options = StreamRead.parse(
        {
            "LMQ.Servers": "n1",
            "SUBSCRIBEPATTERN": "^a",
            "MAXoffsetspertrigger": "7",
            "MinPartitions": "3",
            "FAILONDATALOSS": "False",
            "INCLUDEHEADERS": "TRUE",
            "Lmq.Lease": "1.5",
        }
    )
    assert options.selection == Selection(None, "^a")
    assert (options.messages_max, options.partitions_min, options.lease_s) == (7, 3, 1.5)
    assert (options.fail_on_data_loss, options.include_headers) == (False, True)


def test_servers_is_another_name_of_lmq_servers() -> None:
    assert Write.parse({"servers": "n1:1"}).connection.servers == "n1:1"


def test_options_of_spark_itself_are_left_alone() -> None:
    assert Write.parse({**WRITE, "checkpointLocation": "/tmp/x", "path": "y"}).queue is None


@pytest.mark.parametrize(
    ("changed", "option", "problem"),
    [
        ({"lmq.servers": None}, "lmq.servers", "is required"),
        ({"lmq.servers": "n1:x"}, "lmq.servers", "must be host:port"),
        ({"lmq.servers": " "}, "lmq.servers", "is empty"),
        ({"servers": "n2:1"}, "servers", "give only one"),
        ({"subscribe": None}, "subscribe", "or 'subscribePattern' is required"),
        ({"subscribePattern": "a"}, "subscribe", "exclude each other"),
        ({"subscribe": "q" * 256}, "subscribe", "at most 255 bytes, not 256"),
        ({"maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger", "from 1 to 100000, not '0'"),
        ({"maxOffsetsPerTrigger": "100001"}, "maxOffsetsPerTrigger", "from 1 to 100000"),
        ({"minPartitions": "two"}, "minPartitions", "a whole number from 1 to 10000, not 'two'"),
        ({"lmq.lease": "0"}, "lmq.lease", "above 0 and at most 2592000"),
        ({"lmq.lease": "nan"}, "lmq.lease", "above 0"),
        ({"lmq.timeout": "301"}, "lmq.timeout", "at most 300"),
        ({"failOnDataLoss": "maybe"}, "failOnDataLoss", "must be true or false, not 'maybe'"),
        ({"lmq.subscripton": "a"}, "lmq.subscripton", "did you mean 'lmq.subscription'?"),
        ({"lmq.zzz": "a"}, "lmq.zzz", "is unknown: there are lmq.servers"),
        ({"startingOffsets": "earliest"}, "startingoffsets", "is Kafka's"),
        ({"kafka.bootstrap.servers": "n1"}, "kafka.bootstrap.servers", "is Kafka's"),
        ({"mode": "peek"}, "mode", "is for batch reads, not for streaming reads"),
        ({"queue": "a"}, "queue", "is for writes, not for streaming reads"),
    ],
)
def test_wrong_options_are_refused_by_name(changed: dict[str, str | None], option: str, problem: str) -> None:
    given = {name: value for name, value in {**READ, **changed}.items() if value is not None}
    with pytest.raises(OptionError) as caught:
        StreamRead.parse(given)
    assert caught.value.option == option
    assert problem in str(caught.value)
    assert repr(option) in str(caught.value)


@pytest.mark.parametrize(
    ("changed", "option"),
    [
        ({"mode": "take"}, "mode"),
        ({"lmq.subscription": "a"}, "lmq.subscription"),
        ({"lmq.batchSize": "1"}, "lmq.batchSize"),
    ],
)
def test_wrong_options_of_batch_reads_are_refused_by_name(changed: dict[str, str], option: str) -> None:
    with pytest.raises(OptionError) as caught:
        BatchRead.parse({**READ, **changed})
    assert caught.value.option == option


def test_a_pattern_cannot_be_peeked_into_but_drained() -> None:
    given = {"lmq.servers": "n1", "subscribePattern": "a"}
    with pytest.raises(OptionError, match="subscribePattern"):
        BatchRead.parse(given)
    assert BatchRead.parse({**given, "mode": "drain"}).selection.pattern == "a"


@pytest.mark.parametrize(
    ("changed", "option"),
    [
        ({"lmq.batchSize": "10001"}, "lmq.batchSize"),
        ({"lmq.batchBytes": "0"}, "lmq.batchBytes"),
        ({"subscribe": "a"}, "subscribe"),
        ({"topic": "a"}, "topic"),
    ],
)
def test_wrong_options_of_writes_are_refused_by_name(changed: dict[str, str], option: str) -> None:
    with pytest.raises(OptionError) as caught:
        Write.parse({**WRITE, **changed})
    assert caught.value.option == option


def test_reads_are_checked_before_it_is_known_of_which_kind_they_are() -> None:
    assert check_common({**READ, "mode": "peek", "maxOffsetsPerTrigger": "1", "includeHeaders": "true"})
    with pytest.raises(OptionError, match=r"lmq\.servers"):
        check_common({"subscribe": "a"})


def test_an_error_survives_the_way_between_processes() -> None:
    error = pickle.loads(pickle.dumps(OptionError("mode", "is wrong")))
    assert (error.option, str(error)) == ("mode", "lmq: option 'mode' is wrong")


def test_token_and_authority_come_from_options_or_else_from_the_drivers_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert (Write.parse(WRITE).connection.token, Write.parse(WRITE).connection.tls_ca) == (None, None)
    monkeypatch.setenv("LMQ_TOKEN", "from the environment")
    monkeypatch.setenv("LMQ_CA_FILE", "/environment.crt")
    found = Write.parse(WRITE).connection
    assert (found.token, found.tls_ca) == ("from the environment", "/environment.crt")
    given = Write.parse({**WRITE, "lmq.token": "given", "lmq.tls.ca": "/given.crt"}).connection
    assert (given.token, given.tls_ca) == ("given", "/given.crt")
    assert "given" not in repr(given).replace("/given.crt", ""), "a secret is not for logs"
