"""Jobs that writes with ``lmq.application`` leave at the cluster, seen from the driver."""

from __future__ import annotations

from collections.abc import Mapping

from .connecting import Cluster
from .options import Write
from .writer import application_job

__all__ = ["stored_rows"]


def stored_rows(options: Mapping[str, str], application: str) -> int:
    """Return how many rows the cluster has stored of an application's last epoch, by all its runs.

    Raises:
        LmqError: the cluster did not answer.
    """
    with Cluster(Write.parse(options).connection) as cluster:
        jobs = cluster.call(lambda client: client.jobs())
    return sum(int(job["messages"]) for job in jobs if job["name"] == application_job(application))
