"""Files of definitions: accepted contents, and contents refused before anything is asked or sent."""

from __future__ import annotations

import json
from typing import Any

import pytest
from lmqcluster_cli.admin.queues import definition_file
from lmqcluster_cli.admin.queues.definition_file import parse_definitions, queue_name
from lmqcluster_cli.shared.errors import CliError, ExitCode

GOOD: dict[str, Any] = {
    "format": "lmqcluster definitions",
    "version": 1,
    "default_properties": [["^mail[.]", {"retry": 5}]],
    "queues": [
        {"name": "orders", "properties": {"retry": 2, "accum": 0.5}, "suspended": True},
        {"name": {"base64": "/w=="}, "properties": {"timeout": 1.5}, "suspended": False},
    ],
    "tokens": [{"name": "shop", "role": "write", "queues": "^orders", "expires_at": None, "principal": "etl"}],
}


def test_a_written_file_can_be_read() -> None:
    found = parse_definitions("x", json.dumps(GOOD).encode())
    assert found.as_json() == GOOD
    assert [queue_name(one.name) for one in found.queues] == ["orders", "\udcff"]


def test_everything_but_format_and_version_may_be_left_out() -> None:
    found = parse_definitions("x", b'{"format": "lmqcluster definitions", "version": 1}')
    assert (found.default_properties, found.queues, found.tokens) == (None, [], [])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"format": "rabbit"}, "not a file of definitions"),
        ({"version": 2}, "version 2"),
        ({"version": True}, "version True"),
        ({"version": "1"}, "version '1'"),
        ({"bindings": []}, "'bindings'"),
        ({"default_properties": {}}, "list"),
        ({"default_properties": [["^x", {"retry": -1}]]}, "retry"),
        ({"queues": {}}, "list"),
        ({"queues": ["orders"]}, "object"),
        ({"queues": [{}]}, "name"),
        ({"queues": [{"name": ""}]}, "bytes"),
        ({"queues": [{"name": "x" * 300}]}, "bytes"),
        ({"queues": [{"name": {"base64": "!"}}]}, "Base64"),
        ({"queues": [{"name": "q", "properties": {"retries": 1}}]}, "'retries'"),
        ({"queues": [{"name": "q", "propertys": {}}]}, "'propertys'"),
        ({"queues": [{"name": "q", "suspended": 1}]}, "suspended"),
        ({"queues": [{"name": "q"}, {"name": {"base64": "cQ=="}}]}, "twice"),
        ({"tokens": [{"name": "t", "role": "root"}]}, "role"),
        ({"tokens": [{"name": 1, "role": "read"}]}, "name"),
        ({"tokens": [{"name": "t", "role": "read", "expires_at": "soon"}]}, "expires_at"),
        ({"tokens": [{"name": "t", "role": "read", "secret": "geheim"}]}, "'secret'"),
        ({"tokens": [{"name": "t", "role": "read", "sqs": 1}]}, "sqs"),
        ({"tokens": [{"name": "t", "role": "read"}] * 2}, "twice"),
    ],
)
def test_invalid_definitions_are_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(CliError) as caught:
        parse_definitions("the file", json.dumps({**GOOD, **change}).encode())
    assert caught.value.exit_code is ExitCode.BAD_DATA
    assert str(caught.value).startswith("the file")
    assert words in str(caught.value)


@pytest.mark.parametrize("data", [b"", b"{", b"\xff", b"[" * 100_000, b"NaN", b'"\\ud800"'])
def test_invalid_json_is_refused(data: bytes) -> None:
    with pytest.raises(CliError) as caught:
        parse_definitions("the file", data)
    assert caught.value.exit_code is ExitCode.BAD_DATA


def test_a_huge_file_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(definition_file, "FILE_BYTES_MAX", 100)
    with pytest.raises(CliError, match="more than"):
        parse_definitions("the file", b" " * 101)
