"""The budgets of client addresses."""

from __future__ import annotations

import asyncio

from lmqcluster.node.limits import ClientBudget, ClientLimits

PEER, OTHER = ("10.0.0.1", 1000), ("10.0.0.2", 1000)


def test_a_budget_is_used_up_and_fills_again() -> None:
    budget = ClientBudget(10)
    assert [budget.take(100.0) for _ in range(10)] == [0.0] * 10
    assert budget.take(100.0) == 0.1
    assert budget.take(100.0625) > 0
    assert budget.take(100.125) == 0.0
    assert budget.take(100.125) > 0


def test_a_budget_does_not_grow_beyond_a_second() -> None:
    budget = ClientBudget(10)
    budget.take(100.0)
    assert [budget.take(1000.0) for _ in range(10)] == [0.0] * 10
    assert budget.take(1000.0) > 0


def test_each_address_has_its_own_share() -> None:
    async def main() -> None:
        limits = ClientLimits("http", connections_max=2, rate=1)
        first, allowed = limits.connected(PEER)
        assert allowed
        assert limits.connected(("10.0.0.1", 2000)) == (first, True)
        assert limits.connected(("10.0.0.1", 3000)) == (first, False)
        other, allowed = limits.connected(OTHER)
        assert allowed
        assert other is not first
        limits.disconnected(PEER, first)
        limits.disconnected(PEER, first)
        assert limits.connected(PEER) == (first, True)

    asyncio.run(main())


def test_to_connect_anew_gives_nobody_more_than_his_share() -> None:
    async def main() -> None:
        limits = ClientLimits("rpc", connections_max=2, rate=1)
        budget, _ = limits.connected(PEER)
        now_s = asyncio.get_running_loop().time()
        assert budget.take(now_s) == 0.0
        limits.disconnected(PEER, budget)
        again, _ = limits.connected(PEER)
        assert again is budget
        assert again.take(now_s) > 0

    asyncio.run(main())
