"""The jobs that writes with ``lmq.application`` leave at the cluster, seen from the driver."""

from __future__ import annotations

import uuid
from collections.abc import Mapping

from ..base.connecting import Cluster
from ..base.options import Write
from .writer import application_job

__all__ = ["Claim"]


class Claim:
    """The claim of one application on a prefix of job names: no other application with it may write.

    Attributes:
        rivals: the jobs of other applications with the prefix; the claim is void if there are any.
    """

    def __init__(self, options: Mapping[str, str], application: str, stem: str) -> None:
        """Begin the application's epoch 0, unless there are rivals.

        Raises:
            LmqError: the cluster did not answer.
        """
        self._options = options
        self._job = application_job(application)
        self._stem = application_job(stem)
        with Cluster(Write.parse(options).connection) as cluster:
            before = self._jobs(cluster)
            self._stored_before = before.get(self._job, 0)
            self.rivals = sorted(before.keys() - {self._job})
            if self.rivals:
                return
            cluster.call(lambda client: client.begin_epoch(self._job, 0, str(uuid.uuid4())))
            # Of two applications that begin at the same time, at least one sees the other.
            self.rivals = sorted(self._jobs(cluster).keys() - {self._job})
            if self.rivals and self._job not in before:
                cluster.call(lambda client: client.end_jobs([self._job]))

    def stored_since(self) -> int:
        """Return how many rows all runs have stored since the claim.

        Raises:
            LmqError: the cluster did not answer.
        """
        with Cluster(Write.parse(self._options).connection) as cluster:
            return self._jobs(cluster).get(self._job, 0) - self._stored_before

    def _jobs(self, cluster: Cluster) -> dict[str, int]:
        """Return the jobs with the prefix, and how many rows each has stored."""
        jobs = cluster.call(lambda client: client.jobs())
        return {str(job["name"]): int(job["messages"]) for job in jobs if str(job["name"]).startswith(self._stem)}
