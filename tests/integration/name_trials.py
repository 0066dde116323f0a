"""Name servers that are slow, hang or return dead and changing addresses: how soon real nodes and clients recover.

python -m tests.integration.name_trials [TRIAL ...]

prints the duration of each trial in seconds; `test_names` runs some of them and waits only for events.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from .cluster import READY_S, NodeProcess
from .named_cluster import NamedCluster, push, silent

__all__ = ["HANG_S", "SLOW_S", "TRIALS", "fail_over", "run_client"]

SLOW_S = 5.0
HANG_S = 600.0
Figures = dict[str, float]


def _seconds(action: Callable[[], object]) -> float:
    begun = time.monotonic()
    action()
    return round(time.monotonic() - begun, 2)


def fail_over(cluster: NamedCluster) -> float:
    """Kill the leader; return the seconds until each of the others has stored a message."""
    leader = cluster.leader()
    leader.kill()
    others = cluster.alive
    return _seconds(lambda: [push(node, "q") for node in others])


def slow_name_server(folder: Path) -> Figures:
    """Delay every lookup by 5 s, for nodes and a client: start, failover, restart of a follower."""
    with NamedCluster(folder) as cluster:
        cluster.names.delay(SLOW_S)
        ready_s = _seconds(cluster.start_all)
        failover_s = fail_over(cluster)
        dead = next(node for node in cluster.nodes if not node.running)
        return {"ready": ready_s, "failover": failover_s, "restart": _seconds(dead.start)}


def hanging_name_server(folder: Path) -> Figures:
    """Keep one node dead and its name hanging while the others start; then hang all names: restart, failover, end."""
    with NamedCluster(folder) as cluster:
        first, _second, third = cluster.nodes
        # The first election needs all founding members.
        cluster.start_all()
        third.kill()
        first.kill()
        cluster.names.delay(HANG_S, "n3.drill")
        ready_s = _seconds(first.start)
        cluster.names.delay(0)
        third.start()
        cluster.names.delay(HANG_S)
        failover_s = fail_over(cluster)
        end_s = max(_seconds(node.stop) for node in cluster.alive)
        return {"ready": ready_s, "failover": failover_s, "end": end_s}


def dead_first_address(folder: Path) -> Figures:
    """Keep the first address of every name silent: start, failover, restart."""
    with NamedCluster(folder) as cluster, silent(cluster.port) as host:
        for name in ("n1.drill", "n2.drill", "n3.drill"):
            cluster.names.set(name, host, *cluster.names.addresses(name))
        ready_s = _seconds(cluster.start_all)
        failover_s = fail_over(cluster)
        dead = next(node for node in cluster.nodes if not node.running)
        return {"ready": ready_s, "failover": failover_s, "restart": _seconds(dead.start)}


def changing_addresses(folder: Path) -> Figures:
    """Restart a node, then the leader, at another address while lookups take 5 s, as pods do."""
    with NamedCluster(folder) as cluster:
        cluster.start_all()
        cluster.names.delay(SLOW_S)

        def return_elsewhere(node: NodeProcess) -> float:
            node.kill()
            cluster.move(node)
            return _seconds(node.start)

        follower_s = return_elsewhere(cluster.followers()[0])
        leader_s = return_elsewhere(cluster.leader())
        for node in cluster.nodes:
            push(node, "q")
        return {"follower": follower_s, "leader": leader_s}


def late_names(folder: Path) -> Figures:
    """Fail all lookups when the nodes start, until 3 s later."""
    with NamedCluster(folder) as cluster:
        known = {name: cluster.names.addresses(name) for name in ("n1.drill", "n2.drill", "n3.drill")}
        for name in known:
            cluster.names.set(name, "!")
        for node in cluster.nodes:
            node.start(wait=False)
        time.sleep(3)
        for name, addresses in known.items():
            cluster.names.set(name, *addresses)
        return {"ready": _seconds(lambda: [node.wait_ready() for node in cluster.nodes])}


CLIENT = """
import asyncio, sys, time
from lmqcluster import AsyncClient, Client
kind, nodes = sys.argv[1:]
begun = time.monotonic()
if kind == "blocking":
    with Client(nodes) as client:
        for _ in range(10):
            client.push("q", b"x")
else:
    async def main():
        async with AsyncClient(nodes) as client:
            for _ in range(10):
                await client.push("q", b"x")
    asyncio.run(main())
print(round(time.monotonic() - begun, 2))
"""


def run_client(cluster: NamedCluster, kind: str, nodes: str) -> float:
    """Run a client or program with the names of a cluster; return the seconds that it took.

    Args:
        cluster: the cluster whose names it resolves.
        kind: ``blocking``, ``asyncio`` or ``lmq-admin``.
        nodes: the addresses of nodes, as the client takes them.
    """
    environment = {**cluster[0].environment}
    command = [sys.executable, "-c", CLIENT, kind, nodes]
    if kind == "lmq-admin":
        command = [sys.executable, "-m", "lmqcluster_cli.admin", "--node", nodes, "status"]
    begun = time.monotonic()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=READY_S, check=False)
    assert done.returncode == 0, done.stderr
    assert "never retrieved" not in done.stderr
    return round(time.monotonic() - begun, 2) if kind == "lmq-admin" else float(done.stdout)


def clients(folder: Path) -> Figures:
    """Run clients when a name's first address is silent, lookups take 5 s, or the first node's name hangs."""
    with NamedCluster(folder) as cluster:
        cluster.start_all()
        figures = {}
        port = cluster[0].rpc.rpartition(":")[2]
        address = cluster.names.addresses("n1.drill")[-1]
        others = [f"n{number}.drill:{cluster[number - 1].rpc.rpartition(':')[2]}" for number in (2, 3)]
        http_port = cluster[0].http.rpartition(":")[2]
        with silent(int(port)) as host, silent(int(http_port)):
            cluster.names.set("n1.drill", host, address)
            cluster.names.set("hangs.drill", address)
            for kind in ("blocking", "asyncio"):
                figures[f"{kind}, silent address"] = run_client(cluster, kind, f"n1.drill:{port}")
            figures["lmq-admin, silent address"] = run_client(cluster, "lmq-admin", f"n1.drill:{http_port}")
            cluster.names.delay(SLOW_S)
            for kind in ("blocking", "asyncio"):
                figures[f"{kind}, slow names"] = run_client(cluster, kind, ",".join([f"n1.drill:{port}", *others]))
            figures["lmq-admin, slow names"] = run_client(cluster, "lmq-admin", f"n1.drill:{http_port}")
            cluster.names.delay(0)
            cluster.names.delay(HANG_S, "hangs.drill")
            for kind in ("blocking", "asyncio"):
                figures[f"{kind}, first name hangs"] = run_client(
                    cluster, kind, ",".join([f"hangs.drill:{port}", *others])
                )
        return figures


TRIALS: dict[str, Callable[[Path], Figures]] = {
    trial.__name__: trial
    for trial in (
        slow_name_server,
        hanging_name_server,
        dead_first_address,
        changing_addresses,
        late_names,
        clients,
    )
}


def main() -> None:
    """Run the named trials, or all."""
    for name in sys.argv[1:] or TRIALS:
        with tempfile.TemporaryDirectory() as folder:
            figures = TRIALS[name](Path(folder))
        print(f"{name}: {', '.join(f'{what} {seconds:g} s' for what, seconds in figures.items())}", flush=True)


if __name__ == "__main__":
    main()
