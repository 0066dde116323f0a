"""Three nodes, and names of queues; see the integration tests."""

from ..integration.conftest import new_queue_name, queue_name, shared_cluster

__all__ = ["new_queue_name", "queue_name", "shared_cluster"]
