"""The HTTP reference and the code name the same routes, parameters, roles, errors and limits."""

from __future__ import annotations

import re
from typing import Any

import pytest

from lmqcluster.node.metrics.queues_page import QUEUES_DEFAULT, QUEUES_MAX
from lmqcluster.node.queues.views.listing import SORT_KEYS, STATES
from lmqcluster.protocols.http.openapi.document import build
from lmqcluster.protocols.http.server import connection, error_reply
from lmqcluster.protocols.http.server.permissions import permissions_of
from lmqcluster.protocols.http.server.requests import framing, values
from lmqcluster.protocols.http.v1 import queue_views, queues
from lmqcluster.protocols.http.v1.bodies.rendering import QUEUE_FIELDS
from lmqcluster.wire import limits
from lmqcluster.wire.errors import ERRORS
from tests.docs.http import TEXT, Route, routes
from tests.docs.needs import phrase

FOUND = routes()
DESCRIBED: dict[str, Any] = build()["paths"]
CONSOLE = {("GET", "/"), ("GET", "/console"), ("GET", "/console/{file}")}
"""Not in the OpenAPI document: no program uses them."""
KiB = 1024
MiB = 1024 * KiB


def test_every_route_that_the_openapi_document_has_has_a_section() -> None:
    """That the OpenAPI document has all routes of a node is tested with a node."""
    verbs = {"get", "put", "post", "patch", "delete"}
    described = {(verb.upper(), path) for path, item in DESCRIBED.items() for verb in verbs & item.keys()}
    named = [(route.method, route.path) for route in FOUND]
    assert sorted(named) == sorted(described | CONSOLE)


@pytest.mark.parametrize("route", FOUND, ids=str)
def test_a_section_names_the_role_that_the_route_needs(route: Route) -> None:
    assert route.needs == phrase(permissions_of(route.path)[route.method])


@pytest.mark.parametrize("route", FOUND, ids=str)
def test_a_section_names_the_parameters_of_the_route(route: Route) -> None:
    parameters = query_parameters(route)
    for name in parameters:
        assert f"`{name}`" in route.text, name
    if parameters and "| Parameter |" in route.text:
        assert route.names <= parameters


def query_parameters(route: Route) -> set[str]:
    item = DESCRIBED.get(route.path, {})
    operation = item.get(route.method.lower(), {})
    declared = [*item.get("parameters", ()), *operation.get("parameters", ())]
    return {parameter["name"] for parameter in declared if parameter["in"] == "query"}


def test_the_status_table_agrees_with_the_error_codes() -> None:
    table = TEXT.partition("| Status | Meaning |")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| (\d+) \| (.*) \|$", table, re.MULTILINE)
    # Batches are read over MessagePack-RPC only.
    used = {spec.http for code, spec in ERRORS.items() if code != "lease_expired"}
    assert used <= {int(status) for status, _ in rows}
    for status, meaning in rows:
        for code in re.findall(r"`([a-z_]+)`", meaning):
            assert ERRORS[code].http == int(status), code


def test_the_table_of_fields_has_all_fields_of_a_queue() -> None:
    table = TEXT.partition("| Field | Meaning |")[2].partition("\n\n")[0]
    assert re.findall(r"`(\w+)`", "".join(row.split(" | ")[0] for row in table.splitlines())) == list(QUEUE_FIELDS)


def test_the_section_of_the_list_has_all_sort_keys() -> None:
    [text] = [route.text for route in FOUND if str(route) == "GET /v1/queues"]
    for name, wanted in (("sort", SORT_KEYS), ("state", STATES)):
        row = re.search(rf"^\| `{name}` \| (.*) \|$", text, re.MULTILINE)
        assert row is not None
        assert re.findall(r"`(\w+)`", row[1]) == list(wanted)


@pytest.mark.parametrize(
    ("said", "value", "wanted"),
    [
        ("| Request line | 4,096 bytes |", error_reply.REQUEST_LINE_BYTES_MAX, 4_096),
        ("| Value of a header | 4,096 bytes |", connection.HEADER_VALUE_BYTES_MAX, 4_096),
        ("32 KiB, 128 headers", (framing.HEAD_BYTES_MAX, connection.HEADERS_MAX), (32 * KiB, 128)),
        ("| Body of one message | 64 MiB", limits.MESSAGE_BYTES_MAX, 64 * MiB),
        (
            "104 MiB, 10,000 messages, 250,000 values",
            (limits.REQUEST_BYTES_MAX, limits.PUSH_COUNT_MAX, values.VALUES_MAX),
            (104 * MiB, 10_000, 250_000),
        ),
        ("8 MiB, 10,000 ids", (limits.HTTP_PROPERTY_BYTES_MAX, queues.IDS_MAX), (8 * MiB, 10_000)),
        ("Time between two requests of a connection | 5 seconds", connection.IDLE_S, 5),
        ("| Requests on one connection | 10,000 |", connection.REQUESTS_PER_CONNECTION_MAX, 10_000),
        ("maximum number of queues, 1 to 10,000", queue_views.QUEUES_PER_PAGE_MAX, 10_000),
        ("maximum number of messages, 1 to 1,000; missing: 20", queue_views.PEEK_MAX, 1_000),
        ("0 to 1,048,576; missing: 65,536", queue_views.CONTENT_BYTES_MAX, 1_048_576),
        ("exceeds 8 MiB", queue_views.PEEK_BYTES_MAX, 8 * MiB),
        ("1 to 100,000; missing: 1,000", (QUEUES_MAX, QUEUES_DEFAULT), (100_000, 1_000)),
    ],
)
def test_a_limit_is_the_one_of_the_code(said: str, value: object, wanted: object) -> None:
    assert said in " ".join(TEXT.split())
    assert value == wanted
