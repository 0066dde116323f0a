"""The protocol document of MessagePack-RPC: a node accepts the documented calls, and answers the example byte
for byte.
"""

from __future__ import annotations

import re

import pytest

from tests.docs.messagepack_rpc import PAGE, Method, methods

from .cluster import NodeProcess
from .raw_rpc import Rpc

TEXT = PAGE.read_text(encoding="utf-8")
FOUND = methods(TEXT)
NOTHING = "(\n"
"""Neither a queue name nor a regular expression: every method fails on it without waiting."""


def test_the_conversation_at_the_beginning_is_a_real_one(node: NodeProcess) -> None:
    found = dict(re.findall(r"^(client|node): +((?:[0-9a-f]{2} )+)", TEXT, re.MULTILINE))
    with Rpc(node.rpc) as rpc:
        assert rpc.exchange(bytes.fromhex(found["client"])) == bytes.fromhex(found["node"])


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
