"""The route table and its refusals."""

from __future__ import annotations

import pytest

from lmqcluster.protocols.http.lmq import errors as lmq_errors
from lmqcluster.protocols.http.server.replies import problem
from lmqcluster.protocols.http.server.replies.reply import Reply, header_value
from lmqcluster.protocols.http.server.routing import Resource, Router
from lmqcluster.wire.errors import ERRORS, LmqError


def resource() -> Resource:
    return Resource({}, lmq_errors.on_error, lmq_errors.refuse("GET"))


def test_router_finds_the_deepest_match_and_its_variables() -> None:
    router = Router()
    every, one, message, ours = resource(), resource(), resource(), resource()
    router.add("/messages", every)
    router.add("/messages/{name}", one)
    router.add("/messages/{name}/{id}", message)
    router.add("/v1/queues/{name}/pull", ours)
    assert router.find([b"messages"]) == (every, [])
    assert router.find([b"messages", b"q"]) == (one, [b"q"])
    assert router.find([b"messages", b"q", b"i"]) == (message, [b"q", b"i"])
    assert router.find([b"v1", b"queues", b"a/b", b"pull"]) == (ours, [b"a/b"])
    for path in ([], [b"Messages"], [b"messages", b"q", b"i", b"x"], [b"v1"], [b"v1", b"queues", b"q"], [b"v1", b"x"]):
        assert router.find(path)[0] is None


def test_router_refuses_a_second_resource_at_a_path() -> None:
    router = Router()
    router.add("/stats", resource())
    with pytest.raises(ValueError, match="/stats"):
        router.add("/stats", resource())


@pytest.mark.parametrize("code", sorted(ERRORS))
def test_lmq_errors_have_a_status_and_no_body(code: str) -> None:
    reply = lmq_errors.on_error(LmqError(code, "what\r\nhappened: ü"))
    assert reply.code == ERRORS[code].http
    assert reply.content == b""
    assert b"x-lmq-error: %b: what??happened: ?\r\n" % code.encode() in reply.head
    assert (b"retry-after: 1\r\n" in reply.head) == (reply.code == 503)


@pytest.mark.parametrize("code", sorted(ERRORS))
def test_problems_have_all_fields(code: str) -> None:
    reply = problem.on_error(LmqError(code, "detail"))
    spec = ERRORS[code]
    assert reply.code == spec.http
    assert f'"status":{spec.http}'.encode() in reply.content
    assert f'"code":"{code}"'.encode() in reply.content
    assert f'"outcome":"{spec.outcome}"'.encode() in reply.content
    assert reply.head.startswith(b"content-type: application/problem+json\r\n")
    assert (b"retry-after" in reply.head) == (spec.http == 503)


def test_refusals_list_the_allowed_methods() -> None:
    refuse = lmq_errors.refuse("GET, PUT, DELETE")
    assert refuse(405).head == b"allow: GET, PUT, DELETE\r\n"
    assert refuse(501).head == b""
    assert b"allow: GET, DELETE\r\n" in problem.refuse("GET", "DELETE")(405).head


def test_header_values_cannot_start_another_header() -> None:
    assert header_value(b"a\r\nb") == b"a  b"
    assert header_value(b"a\tb\xff") == b"a\tb\xff"


def test_reply_joins_pieces() -> None:
    assert Reply(200, content=[b"a", b"b"]).content == b"ab"
