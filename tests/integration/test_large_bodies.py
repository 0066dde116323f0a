"""The largest bodies of the kinds that are slowest to decode: other clients are served in the meantime."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import msgpack
import pytest

from lmqcluster.wire.limits import REQUEST_BYTES_MAX

from .bad_input import unharmed
from .cluster import Cluster
from .raw_http import Answer, Connection

ROOM = REQUEST_BYTES_MAX - 100
TIMEOUT_S = 180.0
SENDERS = 2


@pytest.fixture(scope="module")
def victims(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(1, directory=tmp_path_factory.mktemp("victims")) as nodes:
        yield nodes


def repeated(part: bytes) -> bytes:
    return part * (ROOM // len(part))


def push(address: str, body: bytes, media: str) -> Answer:
    with Connection(address) as connection:
        connection.socket.settimeout(TIMEOUT_S)
        return connection.call("POST", "/v1/queues/large/messages", body, {"Content-Type": media})


BODIES = {
    "numbers": b'{"messages":[%b0]}' % repeated(b"1" * 4300 + b","),
    "escapes": b'{"messages":[{"content":"%b"},{}]}' % repeated(b"\\n"),
    "backslashes": b'{"messages":[{"content":"%b"},{}]}' % repeated(b"\\\\"),
    "pairs": b'{"messages":[{"content":"%b"},{}]}' % repeated(b"\\ud83d\\ude00"),
    "names": b'{"messages":[{%b"content":"c"}]}' % b"".join(b'"%0370d":0,' % number for number in range(124_000)),
}
"""All are refused, so that nothing has to be stored and replicated."""


@pytest.mark.parametrize("kind", BODIES)
def test_json_of_the_largest_size_does_not_block_other_clients(victims: Cluster, kind: str) -> None:
    body = BODIES[kind]
    assert len(body) <= REQUEST_BYTES_MAX
    with unharmed(victims) as canary, ThreadPoolExecutor(SENDERS) as pool:
        canary.check()
        rounds = canary.rounds
        answers = list(pool.map(lambda _: push(victims[0].http, body, "application/json"), range(SENDERS)))
        assert canary.rounds > rounds, "no other client was served"
    codes = {answer.status for answer in answers}
    assert codes <= {400, 413, 503}
    assert codes & {400, 413}, "none of them was decoded"


def test_messagepack_of_the_most_values_does_not_block_other_clients(victims: Cluster) -> None:
    body = msgpack.packb({"messages": [{"content": b"x" * 100, "more": [0] * 19}] * 10_000})
    with unharmed(victims) as canary, ThreadPoolExecutor(SENDERS) as pool:
        answers = list(pool.map(lambda _: push(victims[0].http, body, "application/x-msgpack"), range(SENDERS)))
        canary.check()
    assert {answer.status for answer in answers} == {400}
