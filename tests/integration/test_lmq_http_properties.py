"""LMQ over HTTP, specification sections 3, 9.1 and 9.2: properties and default rules."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .cluster import NodeProcess
from .raw_http import Answer, call

JSON = {"Content-Type": "application/json"}
DEFAULTS = b'{"accum":0,"retry":2,"timeout":30}'


def patch(node: NodeProcess, name: str, body: str | bytes, content_type: str | None = "application/json") -> Answer:
    data = body if isinstance(body, bytes) else body.encode()
    headers = {"Content-Type": content_type} if content_type else {}
    return call(node.http, "PATCH", f"/properties/{name}", data, headers)


def get(node: NodeProcess, name: str) -> bytes:
    return call(node.http, "GET", f"/properties/{name}").body


def put_rules(node: NodeProcess, body: str | bytes, content_type: str | None = "application/json") -> Answer:
    data = body if isinstance(body, bytes) else body.encode()
    return call(node.http, "PUT", "/properties", data, {"Content-Type": content_type} if content_type else {})


def get_rules(node: NodeProcess) -> bytes:
    return call(node.http, "GET", "/properties").body


@pytest.fixture
def rules(node: NodeProcess) -> Iterator[None]:
    """Removes all default rules afterwards: they are cluster-wide."""
    yield
    assert call(node.http, "DELETE", "/properties").status == 204


def exists(node: NodeProcess, name: str) -> bool:
    return name in call(node.http, "GET", "/stats").json["queues"]


# --- 9.1
# ---------------------------------------------------------------------------------------------------------------


def test_9_1_defaults_byte_for_byte(node: NodeProcess, queue_name: str) -> None:
    """9.1: keys in alphabetical order; works for queues that do not exist and does not create them."""
    answer = call(node.http, "GET", f"/properties/{queue_name}")
    assert (answer.status, answer.body) == (200, DEFAULTS)
    assert answer.lines == [b"content-type: application/json", b"content-length: 34"]
    assert not exists(node, queue_name)


@pytest.mark.parametrize(
    ("sent", "shown"),
    [
        ('{"accum":1.5}', '{"accum":1.5,"retry":2,"timeout":30}'),
        ('{"retry":7}', '{"accum":0,"retry":7,"timeout":30}'),
        ('{"timeout":0.25}', '{"accum":0,"retry":2,"timeout":0.25}'),
        ('{"timeout":5.0}', '{"accum":0,"retry":2,"timeout":5}'),
        ('{"timeout":1e100}', '{"accum":0,"retry":2,"timeout":1e+100}'),
        ('{"timeout":0.1,"retry":0,"accum":3}', '{"accum":3,"retry":0,"timeout":0.1}'),
        ('{"accum":0.0015}', '{"accum":0.002,"retry":2,"timeout":30}'),
        ('{"accum":0.0001}', '{"accum":0,"retry":2,"timeout":30}'),
        ('{"accum":-0.0015}', '{"accum":-0.002,"retry":2,"timeout":30}'),
        ('{"accum":-3,"retry":0,"timeout":0}', '{"accum":-3,"retry":0,"timeout":0}'),
        ('{"timeout":123456789012}', '{"accum":0,"retry":2,"timeout":123456789012}'),
        ('{"timeout":0.1234567890123456}', '{"accum":0,"retry":2,"timeout":0.123456789012346}'),
        ('{"pack":4}', '{"accum":4,"retry":2,"timeout":30}'),
        (' {\n"retry" : 3 } ', '{"accum":0,"retry":3,"timeout":30}'),
    ],
)
def test_9_1_patch_and_get(node: NodeProcess, queue_name: str, sent: str, shown: str) -> None:
    """9.1, 3, 7: values, rounding and number formats; `pack` is an alias."""
    answer = patch(node, queue_name, sent)
    assert (answer.status, answer.body, answer["content-length"]) == (204, b"", b"0")
    assert get(node, queue_name) == shown.encode()


def test_9_1_patch_keeps_earlier_properties(node: NodeProcess, queue_name: str) -> None:
    """9.1: sets those on the queue, keeps the others, creates the queue if needed."""
    assert patch(node, queue_name, '{"retry":5}').status == 204
    assert exists(node, queue_name)
    assert patch(node, queue_name, '{"timeout":7}').status == 204
    assert get(node, queue_name) == b'{"accum":0,"retry":5,"timeout":7}'


def test_9_1_an_empty_patch_changes_nothing(node: NodeProcess, queue_name: str) -> None:
    """9.1, 14: PATCH {} should change nothing."""
    patch(node, queue_name, '{"retry":5}')
    assert patch(node, queue_name, "{}").status == 204
    assert get(node, queue_name) == b'{"accum":0,"retry":5,"timeout":30}'


@pytest.mark.parametrize(
    "body",
    [
        '{"unknown":1}', '{"retry":5,"unknown":1}', '{"retry":1.0}', '{"retry":"1"}', '{"retry":null}', '{"retry":true}',
        '{"accum":"1"}', '{"accum":null}', '{"accum":[]}', '{"timeout":"30"}', '{"timeout":false}', '{"timeout":5,"retry":{}}',
        "", "{", "[]", "null", "1", '"x"', "{'retry':1}", '{"retry":1,}', '{"timeout":NaN}', '{"timeout":Infinity}',
        '{"timeout":1e999}', '{"retry":1}x', '{"Retry":1}', '{"pack":"x"}', '{"retry":99999999999999999999999}',
        b'{"retry":\xff}', "[" * 50_000, '{"retry":' + "9" * 6000 + "}",
    ],
)  # fmt: skip
def test_9_1_bad_properties_are_400_and_change_nothing(node: NodeProcess, queue_name: str, body: str | bytes) -> None:
    """9.1: unknown key, wrong type, malformed JSON, empty body, non-object: 400, nothing changes."""
    assert patch(node, queue_name, '{"retry":9}').status == 204
    answer = patch(node, queue_name, body)
    assert (answer.status, answer.body) == (400, b"")
    assert get(node, queue_name) == b'{"accum":0,"retry":9,"timeout":30}'


@pytest.mark.parametrize(
    "content_type", [None, "text/plain", "application/x-www-form-urlencoded", "json", "application/json2", ""]
)
def test_9_2_other_content_types_are_415(node: NodeProcess, queue_name: str, content_type: str | None) -> None:
    """9.2: PATCH and PUT need Content-Type: application/json: otherwise, or without the header, 415 and no change."""
    assert patch(node, queue_name, '{"retry":9}', content_type).status == 415
    assert put_rules(node, '[[".*",{"retry":9}]]', content_type).status == 415
    assert get(node, queue_name) == DEFAULTS


@pytest.mark.parametrize(
    "content_type", ["application/json; charset=utf-8", "application/json;x=y", "Application/JSON"]
)
def test_9_2_content_type_parameters_are_allowed(node: NodeProcess, queue_name: str, content_type: str) -> None:
    """9.2: parameters allowed."""
    assert patch(node, queue_name, '{"retry":9}', content_type).status == 204


def test_9_1_delete_clears_own_properties(node: NodeProcess, queue_name: str) -> None:
    """9.1: DELETE clears all own properties; creates the queue if needed; 204."""
    assert call(node.http, "DELETE", f"/properties/{queue_name}").status == 204
    assert exists(node, queue_name)
    patch(node, queue_name, '{"retry":9,"accum":1,"hooks":{}}')
    assert call(node.http, "DELETE", f"/properties/{queue_name}").status == 204
    assert get(node, queue_name) == DEFAULTS


# --- 9.2, 3.1
# -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        '[["accum/.*",{"accum":30}],[".*",{"retry":0}]]',
        '[["x",{}]]',
        '[["x",{"timeout":1.5,"accum":2,"retry":1}]]',
        '[["",{"retry":1}],["",{"retry":2}]]',
        '[["キ\\\\/\\"",{"retry":1}]]',
        '[["unused",{"hooks":{"pre_http_push":[["lmq_hook_preserve_header",["a"]]]},"retry":1}]]',
    ],
)
@pytest.mark.usefixtures("rules")
def test_9_2_rules_read_back_exactly(node: NodeProcess, text: str) -> None:
    """9.2: the list exactly as set: order of rules and of keys within a rule as given; [] if none."""
    assert get_rules(node) == b"[]"
    answer = put_rules(node, text)
    assert (answer.status, answer.body, answer["content-length"]) == (204, b"", b"0")
    assert get_rules(node) == text.encode()


@pytest.mark.usefixtures("rules")
def test_9_2_delete_empties_the_list(node: NodeProcess, queue_name: str) -> None:
    """9.2: DELETE empties the list, 204; 3.1: existing queues change back."""
    put_rules(node, f'[["^{queue_name}",{{"retry":8}}]]')
    assert b'"retry":8' in get(node, queue_name)
    assert call(node.http, "DELETE", "/properties").status == 204
    assert get_rules(node) == b"[]"
    assert get(node, queue_name) == DEFAULTS


@pytest.mark.parametrize(
    "body",
    [
        "", "{", "{}", "null", "1", '"x"', '[["a"]]', '[["a",{},1]]', "[[1,{}]]", '[["a",[]]]', '[["a",null]]', '["a",{}]',
        "[{}]",
        '[["a",{"unknown":1}]]', '[["a",{"retry":1.5}]]', '[["(",{}]]', '[["ok",{"retry":1}],["[",{}]]', '[["(?=x)",{}]]',
        '[["a{2,1}",{}]]', '[["a",{"hooks":[]}]]', b'[["\xff",{}]]',
    ],
)  # fmt: skip
@pytest.mark.usefixtures("rules")
def test_9_2_bad_rules_are_400_and_change_nothing(node: NodeProcess, body: str | bytes) -> None:
    """9.2: anything that is not a list of [string, valid properties], and invalid regular expressions: 400,
    unchanged.
    """
    before = '[["unused",{"retry":1}]]'
    assert put_rules(node, before).status == 204
    answer = put_rules(node, body)
    assert (answer.status, answer.body) == (400, b"")
    assert get_rules(node) == before.encode()


@pytest.mark.usefixtures("rules")
def test_3_1_own_properties_then_the_first_matching_rule_then_the_default(node: NodeProcess, queue_name: str) -> None:
    """3.1: for each property separately; rules after the first match are ignored even for properties it does
    not mention.
    """
    put_rules(node, f'[["^{queue_name}-a",{{"retry":1}}],["{queue_name}",{{"retry":5,"timeout":6}}]]')
    assert get(node, f"{queue_name}-a") == b'{"accum":0,"retry":1,"timeout":30}'
    assert get(node, f"{queue_name}-b") == b'{"accum":0,"retry":5,"timeout":6}'
    patch(node, f"{queue_name}-b", '{"retry":7}')
    assert get(node, f"{queue_name}-b") == b'{"accum":0,"retry":7,"timeout":6}'
    call(node.http, "DELETE", f"/properties/{queue_name}-b")
    assert get(node, f"{queue_name}-b") == b'{"accum":0,"retry":5,"timeout":6}'


@pytest.mark.usefixtures("rules")
def test_3_1_rules_are_dynamic_and_used(node: NodeProcess, queue_name: str) -> None:
    """3.1, 12.4: default rules affect existing queues as well as later ones, in pushes and deliveries, not
    only in listings.
    """
    call(node.http, "POST", f"/messages/{queue_name}", b"before")
    put_rules(node, f'[["{queue_name}",{{"retry":4}}]]')
    call(node.http, "POST", f"/messages/{queue_name}", b"after")
    retries = [call(node.http, "GET", f"/messages/{queue_name}?t=0")["x-lmq-retry-remaining"] for _ in range(2)]
    assert retries == [b"2", b"4"]
    call(node.http, "POST", f"/messages/new-{queue_name}", b"x")
    assert call(node.http, "GET", f"/messages/new-{queue_name}?t=0")["x-lmq-retry-remaining"] == b"4"


@pytest.mark.usefixtures("rules")
def test_3_1_patterns_search_the_decoded_name(node: NodeProcess, queue_name: str) -> None:
    """3.1: unanchored search, applied to the decoded queue name."""
    put_rules(node, f'[["{queue_name}/a b$",{{"retry":8}}]]')
    assert b'"retry":8' in get(node, f"x{queue_name}%2Fa+b")
    assert b'"retry":2' in get(node, f"x{queue_name}%2Fa+bc")


@pytest.mark.usefixtures("rules")
def test_3_1_a_catastrophic_rule_does_no_harm(node: NodeProcess) -> None:
    """3.1: any regular expression matches in linear time."""
    assert put_rules(node, '[["^(a+)+$",{"retry":1}]]').status == 204
    assert get(node, "a" * 200 + "!") == DEFAULTS


def test_9_2_property_bodies_are_limited(node: NodeProcess, queue_name: str) -> None:
    """7: property bodies may be limited to 8 MB."""
    assert patch(node, queue_name, b" " * (8 * 1024 * 1024 - 2) + b"{}").status == 204
    assert patch(node, queue_name, b" " * (8 * 1024 * 1024) + b"{}").status == 413
