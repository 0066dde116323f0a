"""Regular expressions: bounds for clients and rules, and one engine for all nodes."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from lmqcluster.core import State
from lmqcluster.node.queues.patterns import patterns
from lmqcluster.node.queues.patterns.patterns import ENGINE_VERSION, PROGRAM_MAX, check_engine, check_pattern
from lmqcluster.node.queues.sending.rules import RULES_INSTRUCTIONS_MAX, check_rules
from lmqcluster.wire.errors import LmqError
from lmqcluster.wire.properties import RULES_MAX, parse_rules

PYPROJECT = Path(__file__).resolve().parents[3] / "pyproject.toml"


def test_the_engine_is_pinned_and_goes_with_the_machine_version() -> None:
    """A change of one of the two affects the other: members of a rolling upgrade must match names alike."""
    dependencies = tomllib.loads(PYPROJECT.read_text())["project"]["dependencies"]
    assert f"google-re2=={ENGINE_VERSION}" in dependencies
    assert (State.VERSION_MAX, ENGINE_VERSION) == (1, "1.1.20251105")


def test_a_node_does_not_run_with_another_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    check_engine()
    monkeypatch.setattr(patterns, "version", lambda _name: "1.2")
    with pytest.raises(ValueError, match=r"google-re2 1\.2 is installed, this release needs"):
        check_engine()


def test_rules_are_bounded_in_number_and_in_what_matching_them_costs() -> None:
    """Each new queue is matched with all of them inside the state machine."""
    check_rules([(f"^q{number}", []) for number in range(RULES_MAX)])
    with pytest.raises(LmqError, match=f"at most {RULES_MAX} default rules"):
        parse_rules([["q", {}]] * (RULES_MAX + 1))
    large = "a{900}b{900}c{900}d{900}"
    assert PROGRAM_MAX > check_pattern(large.encode()) > RULES_INSTRUCTIONS_MAX // 6
    with pytest.raises(LmqError, match="instructions") as refused:
        check_rules([(large, [])] * 6)
    assert refused.value.code == "bad_property"
    with pytest.raises(LmqError, match="missing") as refused:
        check_rules([("(", [])])
    assert refused.value.code == "bad_pattern"
