"""The jobs that writes with ``lmq.application`` leave at the cluster, seen from the driver."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence

from ..base.connecting import Cluster
from ..base.options import Write
from ..base.texts import message_text
from .writer import application_job

__all__ = ["Claim", "keep_headers"]

_HOOK_POINT = "pre_http_push"
_HOOK = "lmq_hook_preserve_header"


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


def keep_headers(options: Mapping[str, str], headers: Mapping[str, Sequence[str]]) -> None:
    """Configure queues without hooks to keep headers; the keys are names as columns show them.

    Raises:
        LmqError: the cluster did not answer, or refuses a queue.
    """
    if not headers:
        return
    with Cluster(Write.parse(options).connection) as cluster:
        for queue, names in headers.items():
            hooks = {"hooks": {_HOOK_POINT: [[_HOOK, list(names)]]}}
            cluster.call(
                lambda client, queue=queue, hooks=hooks: client.update_props(  # type: ignore[misc]
                    message_text(queue), hooks, only_unset=True
                )
            )
