"""Options of the data source: names, defaults, ranges, and errors that name the option."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from lmqcluster.spark.base.errors import OptionError
from lmqcluster.spark.base.options import BatchRead, Connection, Selection, StreamRead, Write, check_common
from lmqcluster.spark.base.reference import OPTIONS, Operation
from lmqcluster.spark.base.schema import Extras

READ = {"lmq.servers": "n1:18800,n2:18810", "subscribe": "jobs"}
WRITE = {"lmq.servers": "n1:18800"}


def test_defaults_of_a_streaming_read() -> None:
    options = StreamRead.parse(READ)
    assert options == StreamRead(
        connection=Connection("n1:18800,n2:18810", timeout_s=600, connect_timeout_s=2),
        selection=Selection(("jobs",)),
        extras=Extras(),
        explode=False,
        partitions_min=1,
        fail_on_data_loss=True,
        lease_s=86400,
        subscription=None,
        messages_max=100_000,
        bytes_max=128 * 1024 * 1024,
        messages_min=1,
        delay_s_max=900,
    )


def test_defaults_of_a_write() -> None:
    options = Write.parse(WRITE)
    assert (options.queue, options.push_count, options.push_bytes, options.application) == (None, 4000, 1 << 20, None)


@pytest.mark.parametrize("operation", [StreamRead, BatchRead, Write])
def test_the_reference_has_the_real_defaults(operation: type[StreamRead | BatchRead | Write]) -> None:
    kind = {StreamRead: Operation.STREAM_READ, BatchRead: Operation.BATCH_READ, Write: Operation.WRITE}[operation]
    given = dict(WRITE if operation is Write else READ)
    documented = {option.name: option.default for option in OPTIONS if option.default and kind in option.used_by}
    assert operation.parse({**documented, **given}) == operation.parse(given)


def test_every_name_is_case_insensitive() -> None:
    options = StreamRead.parse(
        {
            "LMQ.Servers": "n1",
            "SUBSCRIBEPATTERN": "^a",
            "MAXoffsetspertrigger": "7",
            "MinPartitions": "3",
            "FAILONDATALOSS": "False",
            "INCLUDEATTRIBUTES": "TRUE",
            "Lmq.Lease": "1.5",
        }
    )
    assert options.selection == Selection((), "^a")
    assert (options.messages_max, options.partitions_min, options.lease_s) == (7, 3, 1.5)
    assert (options.fail_on_data_loss, options.extras) == (False, Extras(attributes=True))


def test_servers_is_another_name_of_lmq_servers() -> None:
    assert Write.parse({"servers": "n1:1"}).connection.servers == "n1:1"


def test_options_of_spark_itself_are_ignored() -> None:
    assert Write.parse({**WRITE, "checkpointLocation": "/tmp/x", "path": "y", "spark.x": "z"}).queue is None


@pytest.mark.parametrize(
    ("changed", "option", "problem"),
    [
        ({"lmq.servers": None}, "lmq.servers", "is required"),
        ({"lmq.servers": "n1:x"}, "lmq.servers", "must be host:port"),
        ({"lmq.servers": " "}, "lmq.servers", "is empty"),
        ({"servers": "n2:1"}, "servers", "set only one"),
        ({"subscribe": None}, "subscribe", "or 'subscribePattern' is required"),
        ({"subscribePattern": "a"}, "subscribe", "exclude each other"),
        ({"subscribe": "q" * 256}, "subscribe", "at most 255 bytes, not 256"),
        ({"maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger", "from 1 to 100000, not '0'"),
        ({"maxOffsetsPerTrigger": "100001"}, "maxOffsetsPerTrigger", "from 1 to 100000"),
        ({"minPartitions": "two"}, "minPartitions", "a whole number from 1 to 10000, not 'two'"),
        ({"lmq.lease": "0"}, "lmq.lease", "above 0 and at most 2592000"),
        ({"lmq.lease": "nan"}, "lmq.lease", "above 0"),
        ({"lmq.timeout": "86401"}, "lmq.timeout", "at most 86400"),
        ({"LMQ.Timeout": "x"}, "lmq.timeout", "not 'x'"),
        ({"subscribe": " , "}, "subscribe", "names no queue"),
        ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"}, "minOffsetsPerTrigger", "from 1 to 8"),
        ({"includeAttribute": "true"}, "includeAttribute", "did you mean 'includeAttributes'?"),
        ({"failOnDataLoss": "maybe"}, "failOnDataLoss", "must be true or false, not 'maybe'"),
        ({"lmq.subscripton": "a"}, "lmq.subscripton", "did you mean 'lmq.subscription'?"),
        ({"lmq.zzz": "a"}, "lmq.zzz", "is unknown: the options are lmq.servers"),
        ({"startingoffsets": "earliest"}, "startingOffsets", "is Kafka's"),
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


def test_a_batch_read_removes_nothing_and_names_commands_that_do() -> None:
    assert BatchRead.parse({**READ, "mode": "PEEK"}) == BatchRead.parse(READ)
    with pytest.raises(OptionError, match="'lmq-pipeline archive --once', or 'lmq-admin drain'"):
        BatchRead.parse({**READ, "mode": "drain"})


def test_several_queues_are_a_pattern_of_their_names() -> None:
    selection = StreamRead.parse({**READ, "subscribe": "a.b, c ,a.b"}).selection
    assert selection == Selection(("a.b", "c"))
    assert selection.arguments() == {"pattern": r"^(?:a\.b|c)$"}
    assert str(selection) == "queues 'a.b', 'c'"


@pytest.mark.parametrize(
    ("changed", "option"),
    [
        ({"lmq.batchSize": "10001"}, "lmq.batchSize"),
        ({"lmq.batchBytes": "0"}, "lmq.batchBytes"),
        ({"lmq.rate": "0"}, "lmq.rate"),
        ({"lmq.rate": "nan"}, "lmq.rate"),
        ({"subscribe": "a"}, "subscribe"),
        ({"topic": "a"}, "topic"),
        ({"que": "a"}, "que"),
        ({"priority": "high"}, "priority"),
        ({"priority": str(1 << 31)}, "priority"),
        ({"delay": "-1"}, "delay"),
        ({"ttl": "0"}, "ttl"),
        ({"group": "g" * 256}, "group"),
    ],
)
def test_wrong_options_of_writes_are_refused_by_name(changed: dict[str, str], option: str) -> None:
    with pytest.raises(OptionError) as caught:
        Write.parse({**WRITE, **changed})
    assert caught.value.option == option


def test_reads_are_checked_before_their_kind_is_known() -> None:
    found = check_common({**READ, "mode": "peek", "maxOffsetsPerTrigger": "1", "includeAttributes": "true"})
    assert found == Extras(attributes=True)
    assert check_common({**READ, "includeDelivery": "true"}) == Extras(delivery=True)
    with pytest.raises(OptionError, match=r"lmq\.servers"):
        check_common({"subscribe": "a"})


def test_an_error_survives_the_transfer_between_processes() -> None:
    error = pickle.loads(pickle.dumps(OptionError("mode", "is wrong")))
    assert (error.option, str(error)) == ("mode", "lmq: option 'mode' is wrong")


def test_credentials_come_from_options_or_else_from_the_drivers_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert Write.parse(WRITE).connection == Connection("n1:18800", 600, 2)
    for name in ("TOKEN", "CA_FILE", "CERT_FILE"):
        monkeypatch.setenv(f"LMQ_{name}", f"environment's {name}")
    found = Write.parse(WRITE).connection
    assert (found.token, found.tls_ca, found.tls_cert) == (
        "environment's TOKEN",
        "environment's CA_FILE",
        "environment's CERT_FILE",
    )
    options = {"lmq.token": "secret", "lmq.tls.ca": "/given.crt", "lmq.tls.cert": "/given.pem"}
    given = Write.parse({**WRITE, **options}).connection
    assert (given.token, given.tls_ca, given.tls_cert) == ("secret", "/given.crt", "/given.pem")
    assert "secret" not in repr(given)


def test_a_token_can_be_in_a_file_on_the_driver(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "one").write_text("first\n")
    (tmp_path / "two").write_text("second")
    monkeypatch.setenv("LMQ_TOKEN_FILE", str(tmp_path / "one"))
    assert Write.parse(WRITE).connection.token == "first"
    assert Write.parse({**WRITE, "lmq.token.file": str(tmp_path / "two")}).connection.token == "second"
    assert Write.parse({**WRITE, "lmq.token": "given"}).connection.token == "given"
    with pytest.raises(OptionError, match="exclude each other"):
        Write.parse({**WRITE, "lmq.token": "given", "lmq.token.file": str(tmp_path / "two")})
    with pytest.raises(OptionError, match=r"'lmq.token.file' = .*none' cannot be read on the driver: .*No such file"):
        Write.parse({**WRITE, "lmq.token.file": str(tmp_path / "none")})


def test_the_page_on_spark_lists_every_option_with_its_default() -> None:
    page = (Path(__file__).parents[2] / "docs" / "spark.md").read_text()
    for option in OPTIONS:
        default = f"`{option.default}`" if option.default else ""
        assert f"| `{option.name}` | {default} |" in page
        assert option.meaning in page


def test_options_of_a_write_set_the_delivery_of_rows() -> None:
    given = {"priority": "-3", "delay": "1.5", "ttl": "60", "group": "g", "label": "l"}
    expected = {"priority": -3, "delay": 1.5, "ttl": 60.0, "group": "g", "label": "l"}
    assert Write.parse({**WRITE, **given}).delivery == expected
    assert Write.parse(WRITE).delivery == {}
