"""The protocol document of MessagePack-RPC: a node accepts the documented calls, and answers the example byte
for byte.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.docs.messagepack_rpc import TEXT, Method, methods

from .cluster import NodeProcess
from .raw_rpc import Rpc, old

FOUND = methods()
NOTHING = "(\n"
"""Neither a queue name nor a regular expression: every method fails on it without waiting."""


def test_the_first_calls_are_real_ones(tmp_path: Path) -> None:
    """The first is shown in bytes, the others as values; the id of a message differs from run to run."""
    shown = TEXT.partition("\n## First calls\n")[2].partition("\n## ")[0]
    found = dict(re.findall(r"^(client|node): +((?:[0-9a-f]{2} )+)", shown, re.MULTILINE))
    calls = re.findall(r"^client: (\[.*\])\nnode: +(\[[^`]*?\])$", shown, re.MULTILINE)
    assert len(calls) > 1
    real_id: str = ""
    with NodeProcess(tmp_path) as node, Rpc(node.rpc) as rpc:
        assert rpc.exchange(bytes.fromhex(found["client"])) == bytes.fromhex(found["node"])
        for request, answer in calls:
            _kind, msgid, method, arguments = value(request, real_id)
            rpc.send(old([0, msgid, method, arguments]))
            reply = rpc.read()
            if isinstance(reply.result, dict):
                real_id = reply.result[b"id"].decode()
            assert reply.raw == old(value(answer, real_id))


def value(shown: str, real_id: str) -> Any:
    """Return what a page shows, with the id of the run."""
    return json.loads(re.sub(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", real_id, shown.replace("nil", "null")))


@pytest.mark.parametrize("method", FOUND, ids=lambda method: method.name)
def test_a_method_takes_as_many_arguments_as_its_call_shows(node: NodeProcess, method: Method) -> None:
    fewest, most = len(method.required), len(method.required) + len(method.optional)
    with Rpc(node.rpc) as rpc:
        for count in {max(0, fewest - 1), most + 1} - {fewest}:
            assert rpc.error(method.name, *[NOTHING] * count) == b"undef"
        for count in {fewest, most}:
            rpc.ask(method.name, *[NOTHING] * count)
            assert rpc.read().error != b"undef"
        rpc.call("delete_subscription", NOTHING)
