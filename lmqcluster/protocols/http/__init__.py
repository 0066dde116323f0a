"""HTTP: LMQ's routes byte for byte, the batch routes of ``/v1``, health and metrics.

Nothing here decides anything about queues: a request is translated into a call of the node's service, and its result into
an answer. The parts: `frontend` (start, stop, dispatch), `connection` and `request` (what aiohttp hands over), `reply`
(what goes out), `routing`, `target`, `parameters` and `body` (what came in), `lmq_*` (LMQ's routes) and `v1_*` (ours).
"""

from .frontend import HttpFrontEnd

__all__ = ["HttpFrontEnd"]
