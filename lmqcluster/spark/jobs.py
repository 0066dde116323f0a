"""Jobs that writes with ``lmq.writeId`` leave at the cluster, seen from the driver."""

from __future__ import annotations

from collections.abc import Mapping

from .connecting import Cluster
from .options import Write
from .writer import named_job

__all__ = ["end_job", "stored_rows"]


def end_job(options: Mapping[str, str], write_id: str) -> None:
    """Let the cluster forget a write, which is not going to be repeated.

    Args:
        options: as of the write; those that say how to reach the cluster count.
        write_id: its name.

    Raises:
        LmqError: the cluster did not answer.
    """
    with Cluster(Write.parse(options).connection) as cluster:
        cluster.call(lambda client: client.end_jobs([named_job(write_id)]))


def stored_rows(options: Mapping[str, str], write_id: str) -> int:
    """How many rows have been stored under a name so far, by all attempts and repetitions.

    Raises:
        LmqError: the cluster did not answer.
    """
    with Cluster(Write.parse(options).connection) as cluster:
        jobs = cluster.call(lambda client: client.jobs())
    return sum(int(job["messages"]) for job in jobs if job["name"] == named_job(write_id))
