"""LMQ specification 3: properties, their resolution, and when a change takes effect."""

from __future__ import annotations

from typing import Any

import pytest

from lmqcluster.core import Fault, Op
from tests.property.driver import Driver, bodies, copied, records

Q = b"q"
HOOKS = [["pre_http_push", [["lmq_hook_preserve_header", ["x-foo"]]]]]
HOOKS_SHOWN = (("pre_http_push", (("lmq_hook_preserve_header", ("x-foo",)),)),)


def _effective(driver: Driver, queue: bytes = Q) -> dict[str, Any]:
    return driver.machine.state.properties(queue)


def test_system_defaults() -> None:
    """Spec 3: accum 0, retry 2, timeout 30, hooks absent; readable for queues that do not exist."""
    assert _effective(Driver()) == {"accum": 0, "retry": 2, "timeout": 30}


def test_keys_are_shown_in_alphabetical_order() -> None:
    """Spec 9.1."""
    driver = Driver()
    driver.set(Q, timeout=1, hooks=HOOKS, retry=1, accum=1)
    assert list(_effective(driver)) == ["accum", "hooks", "retry", "timeout"]


def test_own_values_merge() -> None:
    """Spec 9.1 and 14: setting some properties keeps the others that were set before."""
    driver = Driver()
    driver.set(Q, retry=5)
    driver.set(Q, timeout=1.5)
    driver.set(Q, retry=6)
    assert _effective(driver) == {"accum": 0, "retry": 6, "timeout": 1.5}


def test_setting_nothing_changes_nothing_and_creates_the_queue() -> None:
    """Spec 9.1: PATCH creates the queue if needed; `{}` should change nothing."""
    driver = Driver()
    driver.set(Q)
    assert Q in driver.machine.state.queues
    driver.set(Q, retry=5)
    driver.set(Q)
    assert _effective(driver)["retry"] == 5


def test_clearing_restores_the_default_rules() -> None:
    """Spec 9.1: DELETE clears all properties set on the queue."""
    driver = Driver()
    driver.defaults((b".", {"retry": 9}))
    driver.set(Q, retry=5, timeout=1)
    driver.clear(Q)
    assert _effective(driver) == {"accum": 0, "retry": 9, "timeout": 30}


def test_deleting_a_queue_forgets_its_own_properties() -> None:
    """Spec 8.6."""
    driver = Driver()
    driver.set(Q, retry=5)
    driver.delete(Q)
    assert _effective(driver)["retry"] == 2


def test_each_property_is_resolved_by_itself() -> None:
    """Spec 3.1: own value, else the first matching rule, else the system default."""
    driver = Driver()
    driver.defaults((b"q", {"retry": 9, "timeout": 8}))
    driver.set(Q, timeout=7)
    assert _effective(driver) == {"accum": 0, "retry": 9, "timeout": 7}


def test_rules_after_the_first_match_are_ignored() -> None:
    """Spec 3.1: even for properties that the first one does not mention."""
    driver = Driver()
    driver.defaults((b"none", {"accum": 1}), (b"q", {"retry": 9}), (b".*", {"retry": 1, "timeout": 1, "accum": 3}))
    assert _effective(driver) == {"accum": 0, "retry": 9, "timeout": 30}
    assert _effective(driver, b"x") == {"accum": 3, "retry": 1, "timeout": 1}


def test_rules_search_unanchored() -> None:
    """Spec 3.1: unanchored search, applied to the decoded queue name."""
    driver = Driver()
    driver.defaults((b"um/", {"retry": 9}), (b"^a", {"retry": 8}))
    assert _effective(driver, b"accum/x")["retry"] == 9
    assert _effective(driver, b"ba")["retry"] == 2


def test_rules_apply_to_existing_queues_as_well_as_later_ones() -> None:
    """Spec 3.1: resolution is dynamic: setting, replacing or deleting default rules affects existing queues."""
    driver = Driver()
    driver.push(Q, b"before")
    driver.defaults((b"", {"retry": 0}))
    driver.push(Q, b"during")
    driver.push(b"later", b"during")
    driver.defaults()
    driver.push(Q, b"after")
    assert [retry for _, _, retry, _ in driver.pull(Q, 3)] == [2, 0, 2]
    assert driver.pull_one(b"later")[2] == 0


def test_an_invalid_rule_changes_no_rule() -> None:
    """Spec 9.2: a list with anything wrong is refused, unchanged."""
    driver = Driver()
    driver.defaults((b"q", {"retry": 9}))
    for bad in ([[b"(", []]], [[b"q", [[b"retry", 1.0]]]], [[b"q"]], [[b"q", [], []]], 7):
        assert isinstance(driver.batch([Op.SET_DEFAULTS, bad])[0], Fault)
    assert _effective(driver)["retry"] == 9


@pytest.mark.parametrize(
    "pair",
    [
        [b"retry", 1.0],
        [b"retry", True],
        [b"retry", None],
        [b"accum", 0.5],
        [b"timeout", b"1"],
        [b"timeout", float("inf")],
        [b"timeout", float("nan")],
        [b"unknown", 1],
        [b"hooks", 1],
    ],
    ids=repr,
)
def test_a_wrong_value_changes_nothing(pair: list[Any]) -> None:
    """Spec 9.1: unknown key or wrong type anywhere: nothing changes, the queue is not even created."""
    driver = Driver()
    assert isinstance(driver.batch([Op.SET_PROPERTIES, Q, [[b"timeout", 1], pair]])[0], Fault)
    assert driver.machine.state.queues == {}


def test_timeout_applies_to_later_deliveries_of_earlier_messages() -> None:
    """Spec 3.2: for deliveries made afterwards, including messages pushed before the change."""
    driver = Driver()
    driver.push(Q, b"1", b"2")
    driver.pull(Q)
    driver.set(Q, timeout=5)
    driver.pull(Q)
    driver.wait(5)
    assert bodies(driver.pull(Q, 2)) == [b"2"]
    driver.wait(25)
    assert bodies(driver.pull(Q, 2)) == [b"2", b"1"]


def test_timeout_of_a_rule_applies_to_the_next_delivery_and_extension() -> None:
    """Spec 3.2, through default rules."""
    driver = Driver()
    driver.push(Q, b"1", b"2")
    first = driver.pull_one(Q)[1]
    driver.defaults((b"q", {"timeout": 5}))
    assert driver.extend(Q, first) == [True]
    driver.pull(Q)
    driver.wait(5)
    assert bodies(driver.pull(Q, 2)) == [b"1", b"2"]


def test_fractions_of_a_second_count() -> None:
    """Spec 2.1 and 3: times have sub-millisecond precision; timeout is a number."""
    driver = Driver()
    driver.set(Q, timeout=0.0005)
    driver.push(Q, b"x")
    driver.pull(Q)
    driver.wait(0.000499)
    assert driver.pull(Q) == []
    driver.wait(0.000001)
    assert bodies(driver.pull(Q)) == [b"x"]


@pytest.mark.parametrize("timeout", [1e300, (1 << 64) - 1, 1e18])
def test_absurdly_long_timeouts_never_end(timeout: float) -> None:
    """Design law 6: a huge value means forever, and a snapshot can hold the result."""
    driver = Driver()
    driver.set(Q, timeout=timeout, accum=(1 << 63) - 1)
    driver.push(b"other", b"x")
    driver.set(b"other", timeout=timeout)
    driver.push(Q, b"x")
    (taken,) = driver.pull(b"other")
    driver.wait(10**9)
    assert driver.pull(b"other") == []
    assert driver.ack(b"other", taken[1]) == [True]
    assert records(copied(driver.machine)) == records(driver.machine)


def test_hooks_read_back_as_given() -> None:
    """Spec 6: the property reads back with exactly the structure given; `{}` is stored and shown."""
    driver = Driver()
    driver.set(Q, hooks=HOOKS)
    assert _effective(driver)["hooks"] == HOOKS_SHOWN
    driver.set(Q, hooks=[])
    assert _effective(driver)["hooks"] == ()


def test_a_change_is_in_effect_for_the_next_command() -> None:
    """Spec 3.2: also within one batch."""
    driver = Driver()
    results = driver.batch(
        [Op.SET_PROPERTIES, Q, [[b"retry", 0]]],
        [Op.PUSH, Q, None, [b"x"], None, 0],
        [Op.SET_PROPERTIES, Q, [[b"timeout", 0]]],
        [Op.PULL, Q, 1],
        [Op.PULL, Q, 1],
    )
    assert [len(result) for result in results[3:]] == [1, 0]
    assert results[3][0][2] == 0


def _bind(driver: Driver, parent: bytes, child: bytes) -> None:
    driver.do(Op.BIND, parent, child)


def test_a_child_inherits_the_own_properties_of_its_parent() -> None:
    """Kestrel specification 7.1, its own tests' example."""
    driver = Driver()
    driver.defaults((b".", {"max_items": 100, "max_size": 100}))
    # The snapshot then has the child first.
    driver.set(b"foo+fanout", max_items=300)
    driver.set(b"foo", max_items=200, max_item_size=200)
    _bind(driver, b"foo", b"foo+fanout")
    expected = {"max_items": 300, "max_item_size": 200, "max_size": 100}
    assert expected.items() <= _effective(driver, b"foo+fanout").items()
    driver.set(b"foo", max_item_size=None, max_age=60)
    assert "max_item_size" not in _effective(driver, b"foo+fanout")
    assert driver.machine.state.queues[b"foo+fanout"].settings.options.max_age_us == 60_000_000
    assert (
        copied(driver.machine).state.queues[b"foo+fanout"].settings
        == driver.machine.state.queues[b"foo+fanout"].settings
    )


def test_only_children_inherit_and_only_from_their_parents() -> None:
    driver = Driver()
    driver.set(b"a", max_items=5, fanout_only=True, destination_queues=[b"x"], hooks=HOOKS)
    for name in (b"a+b", b"a+b+c", b"other"):
        _bind(driver, b"a", name)
    driver.set(b"a+unbound")
    for name in (b"a+b", b"a+b+c"):
        assert _effective(driver, name) == {"accum": 0, "max_items": 5, "retry": 2, "timeout": 30}
    for name in (b"other", b"a+unbound"):
        assert "max_items" not in _effective(driver, name)
    driver.do(Op.BIND, b"a", b"a+b", False)
    assert driver.machine.state.queues[b"a+b"].settings.options is None
    driver.do(Op.DELETE, b"a")
    assert driver.machine.state.queues[b"a+b+c"].settings.options is None


def test_only_unset_properties_are_set() -> None:
    """A property of the queue, of the first rule that matches or of the parent counts as chosen, a system default does not."""
    driver = Driver()
    wanted = [["retry", 9], ["timeout", 9], ["accum", 9], ["max_items", 9]]
    driver.defaults((b"^ruled", {"retry": 3}))
    driver.set(Q, timeout=1)
    driver.set(b"parent", max_items=5)
    _bind(driver, b"parent", b"parent+child")
    for name in (Q, b"ruled", b"parent+child"):
        driver.do(Op.SET_PROPERTIES, name, wanted, True)
    assert _effective(driver) == {"accum": 9, "max_items": 9, "retry": 9, "timeout": 1}
    assert _effective(driver, b"ruled") == {"accum": 9, "max_items": 9, "retry": 3, "timeout": 9}
    assert _effective(driver, b"parent+child") == {"accum": 9, "max_items": 5, "retry": 9, "timeout": 9}
    driver.do(Op.SET_PROPERTIES, Q, [["retry", 8], ["timeout", 8]], True)
    assert _effective(driver)["retry"] == 9
    assert _effective(driver)["timeout"] == 1
