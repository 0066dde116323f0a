"""Batches to queues with options: messages that a queue appends at once end up like those that are pushed one by one."""

from __future__ import annotations

from typing import Any

import pytest

from lmqcluster.core import Op
from lmqcluster.core.routing.admission import Admission
from tests.property.driver import SECOND, Driver

Q, OTHER = b"q", b"other"
BODIES = (b"a", b"long", b"bb", b"c")
NEVER_DELAYED = [0, 0, 0, 0, b"", b""]


def pushed(size: int, properties: dict[str, Any], options: list[Any], *, is_bound: bool, annotated: bool) -> Any:
    """Return the results and what can be received if the bodies are pushed in commands of this size."""
    driver = Driver()
    for name in (Q, OTHER):
        driver.do(Op.CREATE, name, b"", [], True, [[b"sqs.kind", b"standard"]] if annotated else [])
    if is_bound:
        driver.do(Op.BIND, Q, OTHER, True)
    driver.set(Q, **properties)
    rows = [[body, b"t", b"", b"%d" % place, options] for place, body in enumerate(BODIES)]
    stored = [driver.do(Op.PUSH_ATTEMPTS, Q, rows[at : at + size], b"me") for at in range(0, len(rows), size)]
    driver.wait(5)
    queue = driver.machine.state.queues[Q]
    counts = queue.counters.pushed_total, queue.counters.refused_total, queue.timer_us
    found = [
        (name, message.sequence, message.content, message.meta, message.due_us, getattr(message, "traits", None))
        for name in (Q, OTHER)
        for *_, message in driver.do(Op.POLL, name, 10, 30 * SECOND, False, False, b"", b"", 0)
    ]
    # A queue that stores nothing has no sequences.
    return [flag for part in stored for flag, _sequence in part], counts, found


@pytest.mark.parametrize("annotated", [True, False])
@pytest.mark.parametrize("options", [[], NEVER_DELAYED, [SECOND, 0, 0, 0, b"", b""], [-1, 0, SECOND, 0, b"", b"g"]])
@pytest.mark.parametrize(
    ("properties", "is_bound"),
    [
        ({}, False),
        ({}, True),
        ({"max_age": 600, "max_item_size": 1000}, False),
        ({"max_item_size": 3}, False),
        ({"max_items": 2}, False),
        ({"max_size": 3}, False),
        ({"max_items": 2, "discard_old_when_full": True}, False),
        ({"delay": 1}, False),
        ({"accum": 1}, False),
        ({"accum": 1, "max_age": 600}, False),
        ({"fanout_only": True}, True),
        ({"fanout_only": True}, False),
        ({"destination_queues": ["other"]}, False),
    ],
)
def test_a_batch_is_stored_like_its_messages_one_by_one(
    properties: dict[str, Any],
    is_bound: bool,
    options: list[Any],
    annotated: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    at_once = [pushed(size, properties, options, is_bound=is_bound, annotated=annotated) for size in (1, 3, 4)]
    monkeypatch.setattr(Admission, "appends", lambda *_arguments: False)
    assert at_once == [pushed(1, properties, options, is_bound=is_bound, annotated=annotated)] * 3
