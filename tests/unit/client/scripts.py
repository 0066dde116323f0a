"""Scripts for the nodes of `client_cluster`, which assign fates to requests, and a client with short timeouts."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from lmqcluster import AsyncClient
from lmqcluster.client import Backoff

from .client_cluster import Fate, Request, Script, ScriptedNode

QUICK = Backoff(first_s=0.002, max_s=0.01)


def fates(method: str, *chosen: Fate | str) -> Script:
    """Return the given fates for the first requests of one method; all others are answered."""
    left: Iterator[Fate | str] = iter(chosen)
    return lambda request: next(left, Fate.ANSWER) if request.method == method else Fate.ANSWER


def once(when: Callable[[Request], bool], fate: Fate | str) -> Script:
    """Return a fate for the first request that `when` selects."""
    done = False

    def script(request: Request) -> Fate | str:
        nonlocal done
        if done or not when(request):
            return Fate.ANSWER
        done = True
        return fate

    return script


def client_of(
    *nodes: ScriptedNode, timeout_s: float = 20, heartbeat_s: float = 5, in_flight_max: int = 8192
) -> AsyncClient:
    return AsyncClient(
        [node.address for node in nodes],
        timeout_s=timeout_s,
        heartbeat_s=heartbeat_s,
        in_flight_max=in_flight_max,
        backoff=QUICK,
    )
