"""With any failures of nodes and connections and any refusals, each push is stored exactly once, in call order."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from hypothesis import given, settings
from hypothesis import strategies as st

from lmqcluster import AsyncClient, LmqError
from lmqcluster.client import Backoff

from .client_cluster import Fate, ModelCluster, Request, Script, ScriptedNode

TROUBLE = st.sampled_from(
    [fate for fate in Fate if fate is not Fate.HOLD] + ["overloaded: x", "shutting_down: x", "unknown_outcome: x"]
)
PLAN = st.lists(st.one_of(st.integers(0, 12), TROUBLE), max_size=25)
"""Numbers of answered requests, each followed by the fate of the next one; afterwards all are answered."""
CALLS = st.lists(st.one_of(st.just(0), st.integers(1, 5)), min_size=1, max_size=60)
"""0 is a single push, other numbers are batches."""


def plan_script(plan: list[int | Fate | str], cluster: ModelCluster) -> Script:
    """Return the fates of pushes, in turn."""

    def steps() -> Iterator[Fate | str]:
        for step in plan:
            if isinstance(step, int):
                for _ in range(step):
                    yield Fate.ANSWER
            else:
                yield step

    left = steps()
    count = 0

    def script(request: Request) -> Fate | str:
        nonlocal count
        if not request.method.startswith("push"):
            return Fate.ANSWER
        count += 1
        if count % 3 == 0:
            cluster.apply_late()
        return next(left, Fate.ANSWER)

    return script


async def _run(plan: list[int | Fate | str], calls: list[int], pause_every: int, in_flight_max: int) -> None:
    cluster = ModelCluster()
    script = plan_script(plan, cluster)
    contents: list[int] = []
    futures: list[asyncio.Future[str] | asyncio.Future[list[str]]] = []
    nodes = [ScriptedNode(cluster, script) for _ in range(2)]
    async with nodes[0] as first, nodes[1] as second:
        client = AsyncClient(
            [first.address, second.address],
            in_flight_max=in_flight_max,
            backoff=Backoff(first_s=0.0005, max_s=0.002),
        )
        for position, size in enumerate(calls):
            start = len(contents)
            contents += range(start, start + max(1, size))
            if size:
                futures.append(client.push_many("q", contents[start:]))
            else:
                futures.append(client.push("q", start))
            if position % pause_every == pause_every - 1:
                await asyncio.wait(futures[-1:])
        async with asyncio.timeout(20):
            await asyncio.gather(*futures)
        cluster.apply_late()
        assert cluster.stored == contents
        await client.close()


@settings(deadline=None, max_examples=150)
@given(
    plan=PLAN,
    calls=CALLS,
    pause_every=st.integers(1, 40),
    in_flight_max=st.sampled_from([1, 3, 8192]),
)
def test_every_push_is_stored_exactly_once_and_in_order(
    plan: list[int | Fate | str], calls: list[int], pause_every: int, in_flight_max: int
) -> None:
    asyncio.run(_run(plan, calls, pause_every, in_flight_max))


async def _run_with_cancellations(plan: list[int | Fate | str], cancelled: set[int]) -> None:
    cluster = ModelCluster()
    script = plan_script(plan, cluster)
    nodes = [ScriptedNode(cluster, script) for _ in range(2)]
    async with nodes[0] as first, nodes[1] as second:
        client = AsyncClient([first.address, second.address], backoff=Backoff(first_s=0.0005, max_s=0.002))
        await client.ping()
        futures = [client.push("q", number) for number in range(40)]
        await asyncio.sleep(0)
        for number in cancelled:
            futures[number].cancel()
        await asyncio.gather(*futures, return_exceptions=True)
        assert not any(isinstance(future.exception(), LmqError) for future in futures if not future.cancelled())
        cluster.apply_late()
        assert len(set(cluster.stored)) == len(cluster.stored), "stored twice"
        assert set(cluster.stored) >= set(range(40)) - cancelled, "lost"
        assert [one for one in cluster.stored if one not in cancelled] == sorted(set(range(40)) - cancelled)
        await client.close()


@settings(deadline=None, max_examples=60)
@given(plan=PLAN, cancelled=st.sets(st.integers(0, 39), max_size=15))
def test_cancelled_pushes_leave_the_others_alone(plan: list[int | Fate | str], cancelled: set[int]) -> None:
    asyncio.run(_run_with_cancellations(plan, cancelled))
