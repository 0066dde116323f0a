"""Messages of one group are delivered one after the other, whatever happens to the current one."""

from __future__ import annotations

import pytest

from lmqcluster.core import Op
from lmqcluster.core.log.commands import Place
from tests.property.driver import SECOND, Driver, bodies

Q = b"q"


@pytest.mark.parametrize("place", list(Place))
def test_a_group_waits_for_a_message_that_is_put_back_with_a_delay(place: Place) -> None:
    driver = Driver()
    for body in (b"1", b"2", b"3"):
        driver.do(Op.PUSH_ROWS, Q, [[body, None, b"", None, [-1, 0, 0, 0, b"", b"g"]]])
    driver.do(Op.NACK, Q, [driver.pull_one(Q)[1]], place, SECOND)
    assert driver.pull(Q, 10) == []
    driver.wait(1)
    for body in (b"1", b"2", b"3"):
        (delivery,) = driver.pull(Q, 10)
        assert bodies([delivery]) == [body]
        driver.ack(Q, delivery[1])
