"""Text without a UTF-8 form in every position of every body: a clear answer, never a failure of the node."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

import msgpack
import pytest

from .cluster import NodeProcess
from .raw_http import call

HOOKS = {"pre_http_push": [["lmq_hook_preserve_header", ["x-foo"]]]}
BODIES: list[tuple[str, str, Any]] = [
    ("PATCH", "/properties/{q}", {"retry": 1, "hooks": HOOKS}),
    ("PUT", "/properties", [["pattern", {"hooks": HOOKS}]]),
    ("PATCH", "/v1/queues/{q}/properties", {"retry": 1, "hooks": HOOKS}),
    ("POST", "/v1/queues/{q}/messages", {"messages": [{"content": "c", "content_type": "t", "key": "k"}]}),
    ("POST", "/v1/queues/{q}/messages", {"messages": [{"content": {"base64": "eA=="}}]}),
    ("POST", "/v1/queues/{q}/pull", {"max": 1, "timeout": 0}),
    ("POST", "/v1/queues/{q}/ack", {"ids": ["id"]}),
    ("POST", "/v1/queues/{q}/move", {"to": "other"}),
    ("POST", "/v1/cluster/join", {"peer": "nowhere", "discard_data": False}),
    ("POST", "/v1/cluster/remove", {"node": "n9", "force": False}),
    ("POST", "/v1/cluster/transfer", {"to": "n9"}),
    ("POST", "/v1/tokens", {"name": "t", "role": "admin", "queues": "q", "lifetime": 1}),
    ("PUT", "/v1/log-level", {"level": "info"}),
]
HALVES = ["\ud800", "a\udfffb", "\udc80"]


def spoilt(value: Any, bad: str) -> Iterator[Any]:
    """Yield the value with each of its texts, names of members included, replaced."""
    if isinstance(value, str):
        yield bad
    elif isinstance(value, dict):
        for name in value:
            rest = {other: value[other] for other in value if other != name}
            yield {**rest, bad: value[name]}
            yield from ({**rest, name: changed} for changed in spoilt(value[name], bad))
    elif isinstance(value, list):
        for place, item in enumerate(value):
            yield from ([*value[:place], changed, *value[place + 1 :]] for changed in spoilt(item, bad))


@pytest.mark.parametrize(("method", "path", "body"), BODIES)
def test_half_a_surrogate_pair_in_json_is_malformed(
    node: NodeProcess, queue_name: str, method: str, path: str, body: Any
) -> None:
    for changed in itertools.chain.from_iterable(spoilt(body, half) for half in HALVES):
        answer = call(
            node.http,
            method,
            path.format(q=queue_name),
            json.dumps(changed).encode(),
            {"Content-Type": "application/json"},
        )
        assert answer.status == 400, changed
    whole = json.dumps({"messages": [{"content": "\U0001f600"}]}).encode()
    assert b"\\ud83d\\ude00" in whole
    target = f"/v1/queues/{queue_name}/messages"
    assert call(node.http, "POST", target, whole, {"Content-Type": "application/json"}).status == 200


@pytest.mark.parametrize(("method", "path", "body"), [row for row in BODIES if row[1].startswith("/v1")])
def test_bytes_that_are_not_utf_8_are_never_a_failure(
    node: NodeProcess, queue_name: str, method: str, path: str, body: Any
) -> None:
    """In MessagePack they may be queue names and contents."""
    for changed in spoilt(body, "a\udcff"):
        data = msgpack.packb(changed, unicode_errors="surrogateescape")
        answer = call(node.http, method, path.format(q=queue_name), data, {"Content-Type": "application/x-msgpack"})
        assert answer.status < 500 or answer.json["code"] != "internal", changed
