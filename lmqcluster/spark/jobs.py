"""Jobs that writes with ``lmq.application`` leave at the cluster, seen from the driver."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence

from .connecting import Cluster
from .options import Write
from .texts import message_text
from .writer import application_job

__all__ = ["Claim", "keep_headers"]

_HOOK_POINT = "pre_http_push"
_HOOK = "lmq_hook_preserve_header"


class Claim:
    """The claim of one application on a stem of names: no other one that begins with it may write.

    Attributes:
        rivals: the jobs of other applications with the stem; the claim is void if there are any.
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
            # One that began at the same time sees this one, or is seen.
            self.rivals = sorted(self._jobs(cluster).keys() - {self._job})
            if self.rivals and self._job not in before:
                cluster.call(lambda client: client.end_jobs([self._job]))

    def stored_since(self) -> int:
        """Return how many rows have been stored since the claim, by all runs.

        Raises:
            LmqError: the cluster did not answer.
        """
        with Cluster(Write.parse(self._options).connection) as cluster:
            return self._jobs(cluster).get(self._job, 0) - self._stored_before

    def _jobs(self, cluster: Cluster) -> dict[str, int]:
        """The jobs with the stem, and how many rows are stored of each."""
        jobs = cluster.call(lambda client: client.jobs())
        return {str(job["name"]): int(job["messages"]) for job in jobs if str(job["name"]).startswith(self._stem)}


def keep_headers(options: Mapping[str, str], headers: Mapping[str, Sequence[str]]) -> None:
    """Make queues that have no hooks keep headers, by name of the queue as columns show it.

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
