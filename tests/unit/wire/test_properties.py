"""Properties as clients write them: LMQ specification 3, 9.1, 9.2 and 6."""

from __future__ import annotations

import re
from typing import Any

import pytest

from lmqcluster.core.queue.properties import checked_properties
from lmqcluster.wire.errors import LmqError
from lmqcluster.wire.properties import parse_properties, parse_rules

PRESERVE = "lmq_hook_preserve_header"


def _accum(seconds: Any) -> Any:
    return dict(parse_properties({"accum": seconds}))["accum"]


@pytest.mark.parametrize(
    ("seconds", "milliseconds"),
    [
        (0, 0),
        (30, 30_000),
        (1.5, 1500),
        (0.0015, 2),
        (-0.0015, -2),
        (0.0005, 1),
        (-0.0005, -1),
        (0.0025, 3),
        (0.0001, 0),
        (-0.0001, 0),
        (0.0014, 1),
        (-3, -3000),
        (1e9, 10**12),
    ],
)
def test_accum_is_kept_in_milliseconds_rounded_half_away_from_zero(seconds: float, milliseconds: int) -> None:
    """Spec 3: 0.0015 shows as 0.002; 0.0001 becomes 0 = off; negative numbers are accepted."""
    assert _accum(seconds) == milliseconds
    assert type(_accum(seconds)) is int


@pytest.mark.parametrize("milliseconds", [1, 3, 15, 29, 57, 1001, 4503, 123_457, 10**9 + 1])
def test_whole_milliseconds_survive_conversion_to_seconds(milliseconds: int) -> None:
    """Spec 3: what is shown can be set again without change."""
    assert _accum(milliseconds / 1000) == milliseconds
    assert _accum(-milliseconds / 1000) == -milliseconds


def test_every_property() -> None:
    """Spec 3, in the order given, which default rules keep (spec 9.2)."""
    value = {"timeout": 1.5, "retry": 0, "hooks": {}, "accum": 2}
    assert parse_properties(value) == [("timeout", 1.5), ("retry", 0), ("hooks", []), ("accum", 2000)]


def test_names_may_be_byte_strings() -> None:
    """MessagePack delivers them in this form."""
    hooks = {b"pre_http_push": [[PRESERVE.encode(), [b"x-a"]]]}
    assert parse_properties({b"retry": 3, b"hooks": hooks}) == [
        ("retry", 3),
        ("hooks", [("pre_http_push", [(PRESERVE, ["x-a"])])]),
    ]


def test_pack_is_an_alias_of_accum_and_the_last_one_wins() -> None:
    """Spec 10.3 and design 2.6; its position is that of the one that won."""
    assert parse_properties({"pack": 1}) == [("accum", 1000)]
    assert parse_properties({"accum": 1, "retry": 0, "pack": 2}) == [("retry", 0), ("accum", 2000)]
    assert parse_properties({"pack": 2, "accum": 1}) == [("accum", 1000)]


def test_no_property_is_valid() -> None:
    assert parse_properties({}) == []


@pytest.mark.parametrize(
    "value",
    [
        {"retry": 1.0},
        {"retry": True},
        {"retry": "1"},
        {"retry": None},
        {"retry": -1},
        {"timeout": -0.1},
        {"retry": 1 << 64},
        {"accum": "1"},
        {"accum": True},
        {"accum": None},
        {"accum": float("nan")},
        {"accum": float("inf")},
        {"accum": 1e300},
        {"accum": 10**400},
        {"timeout": "30"},
        {"timeout": False},
        {"timeout": [1]},
        {"timeout": float("inf")},
        {"timeout": 10**400},
        {"unknown": 1},
        {"Retry": 1},
        {"": 1},
        {b"\xff": 1},
        {7: 1},
        {None: 1},
        {"hooks": []},
        {"hooks": None},
        {"hooks": {"pre_http_push": {}}},
        {"hooks": {"pre_http_push": [PRESERVE]}},
        {"hooks": {"pre_http_push": [[PRESERVE]]}},
        {"hooks": {"pre_http_push": [[PRESERVE, [], []]]}},
        {"hooks": {"pre_http_push": [[PRESERVE, "x-a"]]}},
        {"hooks": {"pre_http_push": [[PRESERVE, [1]]]}},
        {"hooks": {"pre_http_push": [["no_such_module", []]]}},
        {"hooks": {"pre_http_push": [[PRESERVE, ["x"] * 65]]}},
        {"hooks": {b"\xff": []}},
        [],
        None,
        "retry",
        [["retry", 1]],
    ],
    ids=lambda value: repr(value)[:60],
)
def test_anything_else_is_refused_as_a_whole(value: Any) -> None:
    """Spec 9.1: unknown key or wrong type anywhere; 3: a JSON `1.0` is no retry; 6: hooks `[]`, unknown module."""
    with pytest.raises(LmqError) as caught:
        parse_properties(value)
    assert caught.value.code == "bad_property"
    if isinstance(value, dict):
        with pytest.raises(LmqError):
            parse_properties({"accum": 1, **value})


@pytest.mark.parametrize(
    "value",
    [
        {"accum": 9e15, "timeout": 1e300, "retry": (1 << 62) - 1},
        {"accum": -9e12, "timeout": 0, "retry": 0},
        {"hooks": {"other_point": [[PRESERVE, []]], "pre_http_push": []}},
    ],
)
def test_accepted_properties_are_accepted_by_the_core(value: Any) -> None:
    """A protocol must never accept properties that the state machine then refuses."""
    try:
        parsed = parse_properties(value)
    except LmqError:
        return
    assert [name for name, _ in checked_properties(parsed)] == [name for name, _ in parsed]


def test_an_unknown_property_is_answered_by_the_name_that_was_meant() -> None:
    for wrong, hint in {
        "max_itms": "did you mean 'max_items'?",
        "maxItems": "did you mean 'max_items'?",
        "retries": "did you mean 'retry'?",
        "visibility": "there are accum, retry, timeout, hooks, max_items, ",
        "x" * 1_000_000: "there are accum, ",
    }.items():
        with pytest.raises(LmqError, match=re.escape(f"is unknown; {hint}")):
            parse_properties({wrong: 1})


def test_rules_keep_the_order_of_rules_and_of_keys() -> None:
    """Spec 9.2: shown exactly as set."""
    value = [["accum/.*", {"timeout": 1, "accum": 30}], [b".*", {"retry": 0}], ["", {}]]
    assert parse_rules(value) == [
        ("accum/.*", [("timeout", 1), ("accum", 30_000)]),
        (".*", [("retry", 0)]),
        ("", []),
    ]
    assert parse_rules([]) == []


@pytest.mark.parametrize(
    "value",
    [
        None,
        {},
        "rules",
        [None],
        [["x"]],
        [["x", {}, {}]],
        [[1, {}]],
        [["x", []]],
        [["x", None]],
        [["x", {"retry": 1.0}]],
        [[b"\xff", {}]],
        [["x", {}]] * 1001,
    ],
    ids=lambda value: repr(value)[:60],
)
def test_wrong_rules_are_refused_as_a_whole(value: Any) -> None:
    """Spec 9.2: anything that is not an array of two-element arrays of string and valid property object."""
    with pytest.raises(LmqError) as caught:
        parse_rules(value)
    assert caught.value.code == "bad_property"
