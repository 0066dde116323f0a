"""LMQ specification 6: headers of a push that the queue's hooks preserve."""

from __future__ import annotations

from typing import Any

from lmqcluster.core import Op
from lmqcluster.wire.attributes import Value, unpack_attributes
from tests.property.driver import Driver, copied

Q = b"q"
SENT = [(b"user-agent", b"curl"), (b"x-foo", b"1"), (b"x-bar", b"2")]


def _hooks(*modules: list[str], point: str = "pre_http_push") -> list[Any]:
    return [[point, [["lmq_hook_preserve_header", names] for names in modules]]]


def _stored(driver: Driver, queue: bytes = Q) -> dict[str, Value]:
    return unpack_attributes(driver.pull_one(queue)[3].meta[1])


def test_only_headers_that_a_hook_names_are_stored() -> None:
    """Spec 6: each argument present on the push is copied; absent headers add nothing."""
    driver = Driver()
    driver.set(Q, hooks=_hooks(["x-foo", "x-absent"]))
    driver.push_item(Q, b"x", headers=SENT)
    assert _stored(driver) == {"x-foo": "1"}


def test_without_hooks_no_header_is_stored() -> None:
    driver = Driver()
    driver.push_item(Q, b"x", headers=SENT)
    assert _stored(driver) == {}


def test_headers_are_in_argument_order() -> None:
    """Spec 6: appended in argument order, modules in list order."""
    driver = Driver()
    driver.set(Q, hooks=_hooks(["x-bar", "user-agent"], ["x-foo"]))
    driver.push_item(Q, b"x", headers=SENT)
    assert list(_stored(driver)) == ["x-bar", "user-agent", "x-foo"]


def test_a_header_named_twice_is_stored_once() -> None:
    """Spec 6: an entry of the same name is replaced, not doubled."""
    driver = Driver()
    driver.set(Q, hooks=_hooks(["x-foo", "x-bar"], ["x-foo"]))
    driver.push_item(Q, b"x", headers=SENT)
    assert _stored(driver) == {"x-foo": "1", "x-bar": "2"}


def test_preserving_the_content_type_does_not_double_it() -> None:
    """Spec 6: it replaces the entry of the same name, which is the push's own content type."""
    driver = Driver()
    driver.set(Q, hooks=_hooks(["content-type", "x-foo"]))
    driver.push_item(Q, b"x", b"text/plain", headers=[*SENT, (b"content-type", b"text/plain")])
    content_type, attributes = driver.pull_one(Q)[3].meta
    assert (content_type, unpack_attributes(attributes)) == (b"text/plain", {"x-foo": "1"})


def test_unknown_hook_points_have_no_effect() -> None:
    """Spec 6: stored and shown without effect."""
    driver = Driver()
    driver.set(Q, hooks=_hooks(["x-foo"], point="post_http_push"))
    driver.push_item(Q, b"x", headers=SENT)
    assert _stored(driver) == {}


def test_setting_hooks_again_deactivates_the_old_ones() -> None:
    """Spec 6 and 3.2: for pushes made afterwards."""
    driver = Driver()
    driver.set(Q, hooks=_hooks(["x-foo"]))
    driver.push_item(Q, b"1", headers=SENT)
    driver.set(Q, hooks=_hooks(["x-bar"]))
    driver.push_item(Q, b"2", headers=SENT)
    driver.set(Q, hooks=[])
    driver.push_item(Q, b"3", headers=SENT)
    assert [_stored(driver) for _ in range(3)] == [{"x-foo": "1"}, {"x-bar": "2"}, {}]


def test_a_hook_of_a_default_rule_also_applies_to_the_push_that_creates_the_queue() -> None:
    """Spec 6: the original does not hook it; here it is hooked."""
    driver = Driver()
    driver.defaults((b"q", {"hooks": _hooks(["x-foo"])}))
    driver.push_item(Q, b"x", headers=SENT)
    assert _stored(driver) == {"x-foo": "1"}


def test_parts_keep_their_own_headers() -> None:
    """Spec 6 and 5: stored headers appear as part headers of a compound message."""
    driver = Driver()
    driver.set(Q, hooks=_hooks(["x-foo"]), accum=1000)
    driver.push_item(Q, b"1", headers=[(b"x-foo", b"a")])
    driver.push_item(Q, b"2", headers=[(b"x-foo", b"b")])
    driver.push(Q, b"3")
    driver.wait(1)
    parts = driver.pull_one(Q)[3].content
    assert [unpack_attributes(part.attributes) for part in parts] == [{"x-foo": "a"}, {"x-foo": "b"}, {}]


def test_push_each_is_hooked_once_per_queue() -> None:
    """Spec 6: also once per queue for push-to-all, each with its own hooks."""
    driver = Driver()
    driver.set(b"a", hooks=_hooks(["x-foo"]))
    driver.set(b"b", hooks=_hooks(["x-bar"]))
    driver.do(Op.PUSH_EACH, [b"a", b"b"], [b"x", None, b"", None, [list(header) for header in SENT]])
    assert (_stored(driver, b"a"), _stored(driver, b"b")) == ({"x-foo": "1"}, {"x-bar": "2"})


def test_queues_with_own_hooks_are_known() -> None:
    """The node asks which headers any queue preserves before it reads a push."""
    driver = Driver()
    driver.set(Q, hooks=_hooks(["x-foo"]))
    driver.set(b"other", retry=1)
    assert (b"x-foo" in driver.machine.state.hooked, len(driver.machine.state.hooked)) == (True, 1)
    driver.set(b"other", hooks=_hooks(["x-foo", "x-bar", "x-foo"]))
    assert len(driver.machine.state.hooked) == len(copied(driver.machine).state.hooked) == 2
    driver.clear(Q)
    assert b"x-foo" in driver.machine.state.hooked
    driver.set(b"other", hooks=_hooks(["x-bar"]))
    assert (b"x-foo" in driver.machine.state.hooked, b"x-bar" in driver.machine.state.hooked) == (False, True)
    driver.clear(b"other")
    assert not driver.machine.state.hooked
    driver.set(Q, hooks=_hooks(["x-foo"]))
    driver.delete(Q)
    assert not driver.machine.state.hooked
