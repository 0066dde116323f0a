"""Sources of the configuration: precedence, origins, and mistakes that are reported instead of ignored."""

from __future__ import annotations

from pathlib import Path

import pytest

from lmqcluster.node.config.config import Address
from lmqcluster.node.config.config_error import ConfigError
from lmqcluster.node.config.load import load_config

SECRET = "a secret of sufficient length"


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_flag_beats_environment_beats_file_beats_default(tmp_path: Path) -> None:
    file = write(tmp_path / "lmq.toml", 'name = "file"\nhttp = "127.0.0.1:1"\nrpc = "127.0.0.1:2"\n')
    environ = {"LMQ_NAME": "environment", "LMQ_HTTP": "127.0.0.1:3"}
    config = load_config({"name": "flag", "http": None}, environ=environ, file=file)
    assert (config.name, config.http, config.rpc) == ("flag", ("127.0.0.1", 3), ("127.0.0.1", 2))
    assert config.origin("name") == "flag --name"
    assert config.origin("http") == "environment LMQ_HTTP"
    assert config.origin("rpc") == f"file {file}"
    assert config.origin("raft") == "default"


def test_environment_names_the_file_and_a_flag_beats_that(tmp_path: Path) -> None:
    one = write(tmp_path / "one.toml", 'name = "one"')
    two = write(tmp_path / "two.toml", 'name = "two"')
    assert load_config(environ={"LMQ_CONFIG": str(one)}).name == "one"
    assert load_config(environ={"LMQ_CONFIG": str(one)}, file=two).name == "two"


def test_every_form_of_a_value_is_read(tmp_path: Path) -> None:
    text = """
        http = "off"
        peers = ["127.0.0.1:1", "localhost:2"]
        data_dir = "/tmp/somewhere"
        message_bytes_max = 1000
        memory_bytes_max = "2GiB"
        log_level = "debug"
    """
    config = load_config(environ={}, file=write(tmp_path / "lmq.toml", text))
    assert config.http is None
    assert config.peers == (Address("127.0.0.1", 1), Address("127.0.0.1", 2))
    assert config.data_dir == Path("/tmp/somewhere")
    assert (config.message_bytes_max, config.memory_bytes_max) == (1000, 2 << 30)
    assert load_config({"peers": "127.0.0.1:1,127.0.0.1:2"}, environ={}).peers == config.peers


@pytest.mark.parametrize(
    ("text", "size"), [("100MiB", 100 << 20), ("65536KiB", 64 << 20), ("1 GiB", 1 << 30), ("99999999B", 99999999)]
)
def test_sizes(text: str, size: int) -> None:
    assert load_config({"memory_bytes_max": text}, environ={}).memory_bytes_max == size


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        ({"http": "9980"}, "http: '9980' is not HOST:PORT (flag --http)"),
        ({"memory_bytes_max": "3GB"}, "memory_bytes_max: '3GB' is not a size"),
        ({"durability": "tape"}, "durability: 'tape' is not one of disk, process, memory"),
        ({"log_level": "loud"}, "log_level: 'loud' is not one of debug, info"),
        ({"name": " "}, "name: ' ' is not a non-empty text"),
    ],
)
def test_bad_value_is_named_with_its_source(flags: dict, text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(flags, environ={})
    assert str(caught.value).startswith(text)


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ('nmae = "x"', "key 'nmae' is unknown; did you mean name?"),
        ('data-dir = "x"', "did you mean data_dir?"),
        ("zzz = 1", "key 'zzz' is unknown; there are name, data_dir"),
        ("http = 9980", "http: 9980 is not a non-empty text"),
        ("= broken", "is not TOML"),
    ],
)
def test_mistakes_in_the_file_are_reported(tmp_path: Path, line: str, text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(environ={}, file=write(tmp_path / "lmq.toml", line))
    assert text in str(caught.value)


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        load_config(environ={}, file=tmp_path / "absent.toml")


def test_likely_mistakes_in_the_environment_are_reported() -> None:
    with pytest.raises(ConfigError, match="LMQ_PEER is unknown; did you mean LMQ_PEERS"):
        load_config(environ={"LMQ_PEER": "127.0.0.1:1"})


def test_other_variables_with_the_prefix_are_ignored() -> None:
    environ = {"LMQ_SERVICE_HOST": "10.0.0.1", "LMQ_PORT_9980_TCP": "x", "LMQ_NODE": "a:1", "LMQ_HTTP": ""}
    assert load_config(environ=environ).http == ("127.0.0.1", 9980)


def test_secret_comes_from_a_file(tmp_path: Path) -> None:
    file = write(tmp_path / "secret", f"  {SECRET}\n")
    config = load_config({"cluster_secret_file": str(file)}, environ={})
    assert config.cluster_secret == SECRET
    assert config.origin("cluster_secret") == f"file {file}"


def test_secret_of_a_stronger_source_beats_the_secret_file_of_a_weaker(tmp_path: Path) -> None:
    file = write(tmp_path / "lmq.toml", 'cluster_secret_file = "/absent"')
    assert load_config(environ={"LMQ_CLUSTER_SECRET": SECRET}, file=file).cluster_secret == SECRET


def test_secret_and_secret_file_from_one_source_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="both given"):
        load_config(environ={"LMQ_CLUSTER_SECRET": SECRET, "LMQ_CLUSTER_SECRET_FILE": str(tmp_path / "x")})


def test_an_unreadable_or_empty_secret_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cluster_secret_file"):
        load_config({"cluster_secret_file": str(tmp_path / "absent")}, environ={})
    with pytest.raises(ConfigError, match="at least 16 bytes"):
        load_config({"cluster_secret_file": str(write(tmp_path / "empty", ""))}, environ={})
