"""The options of traces."""

from __future__ import annotations

from pathlib import Path

import pytest

from lmqcluster.node.config import traces
from lmqcluster.node.config.config import NodeConfig
from lmqcluster.node.config.config_error import ConfigError
from lmqcluster.node.config.load import load_config

ENDPOINT = "http://127.0.0.1:4318/v1/traces"


def load(tmp_path: Path, **environment: str) -> NodeConfig:
    return load_config(environ={"LMQ_DATA_DIR": str(tmp_path), **environment})


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traces, "has_otel", lambda: True)


def test_traces_are_off_by_default(tmp_path: Path) -> None:
    config = load(tmp_path)
    assert (config.trace_otlp_endpoint, config.trace_sample) == (None, 1.0)
    assert load(tmp_path, LMQ_TRACE_OTLP_ENDPOINT="off").trace_otlp_endpoint is None


@pytest.mark.usefixtures("installed")
def test_endpoint_and_sample_are_read(tmp_path: Path) -> None:
    config = load(tmp_path, LMQ_TRACE_OTLP_ENDPOINT=ENDPOINT, LMQ_TRACE_SAMPLE="0.25")
    assert (config.trace_otlp_endpoint, config.trace_sample) == (ENDPOINT, 0.25)


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    "value", ["127.0.0.1:4318", "ftp://host/", "http://", "http://h:0/", "http://h:x/", "http://u:p@h/"]
)
def test_a_bad_endpoint_is_refused(tmp_path: Path, value: str) -> None:
    with pytest.raises(ConfigError, match=r"trace_otlp_endpoint.*not a URL"):
        load(tmp_path, LMQ_TRACE_OTLP_ENDPOINT=value)


@pytest.mark.parametrize("value", ["-0.1", "1.1", "nan", "inf", "x", "true"])
def test_a_bad_sample_is_refused(tmp_path: Path, value: str) -> None:
    with pytest.raises(ConfigError, match=r"trace_sample.*not a number from 0 to 1"):
        load(tmp_path, LMQ_TRACE_SAMPLE=value)


def test_without_the_library_the_reason_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def find_spec(_name: str) -> None:
        raise ModuleNotFoundError

    monkeypatch.setattr(traces, "find_spec", find_spec)
    with pytest.raises(ConfigError, match=r"trace_otlp_endpoint needs .*with the extra otel") as caught:
        load(tmp_path, LMQ_TRACE_OTLP_ENDPOINT=ENDPOINT)
    assert caught.value.exit_code == 78
