"""Pods of the chart whose addresses change: the others find the new address, although the old one hangs or is silent."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from tests.integration.cluster import wait_for

from .pods import Pod, Pods, why_not

NOTICED_S = 60.0
"""A vanished machine is noticed after about ten seconds; without probes, only after two hours."""


@pytest.fixture(scope="module")
def pods(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pods]:
    """A network for pods."""
    reason = why_not()
    if reason is not None:
        pytest.skip(reason)
    with Pods(tmp_path_factory.mktemp("pods")) as made:
        yield made


def leads(pod: Pod) -> bool:
    """Return whether a pod's node leads with a quorum."""
    found = pod.cluster()
    return bool(found["leader"] == found["self"] and found["has_quorum"])


def leader_of(pods: list[Pod]) -> Pod:
    """Return the pod whose node leads."""
    return wait_for(lambda: next((pod for pod in pods if leads(pod)), None), "a leader")


def reached(pod: Pod, other: Pod) -> bool:
    """Return whether a pod's node is connected to another one."""
    return any(node["connected"] for node in pod.cluster()["nodes"] if node["raft"].startswith(f"{other.name}."))


def push(pod: Pod) -> None:
    """Push a message through a pod, once."""
    assert pod.fetch("/messages/q", b"x")[0] == 200


def test_pods_return_at_other_addresses(pods: Pods) -> None:
    """The process of a follower hangs, then the machine of one vanishes; each name moves to a pod with a copy of the volume."""
    running = [pods.start(number) for number in range(3)]
    for pod in running:
        pod.wait_ready()
    leader = leader_of(running)
    hung, other = (pod for pod in running if pod is not leader)
    push(other)

    hung.signal(signal.SIGSTOP)
    push(leader)
    moved = pods.start(running.index(hung), copy_of=hung)
    moved.wait_ready()
    push(moved)

    present = [leader, other, moved]
    leader = leader_of(present)
    # Nothing is sent between followers, so only probes tell them that one has vanished.
    lost, follower = [pod for pod in present if pod is not leader]
    pods.unplug(lost)
    rest = [leader, follower]
    for pod in rest:
        wait_for(lambda pod=pod: not reached(pod, lost), f"{pod.name} misses the lost machine", NOTICED_S)  # type: ignore[misc]
    push(follower)
    back = pods.start(int(lost.name.rpartition("-")[2]), copy_of=lost)
    back.wait_ready()
    for pod in (*rest, back):
        wait_for(lambda pod=pod: all(reached(pod, one) for one in (*rest, back) if one is not pod), "all are connected")  # type: ignore[misc]
    push(back)
    assert [back.fetch("/messages/q?t=30")[0] for _ in range(5)] == [200] * 5
    assert back.fetch("/messages/q?t=0")[0] == 204
