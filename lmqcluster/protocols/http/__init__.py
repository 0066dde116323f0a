"""HTTP: LMQ's routes byte for byte, the batch routes of ``/v1``, health and metrics.

This package translates requests to calls of the node's service and results to answers; it has no queue logic.
`port` starts, stops and dispatches. `server` has the parts that all routes share: connections, requests, replies,
routing. `lmq` has LMQ's routes, `v1` those of lmqcluster, `openapi` their description.
"""

from .port import LmqHttpPort

__all__ = ["LmqHttpPort"]
