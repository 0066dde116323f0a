"""Clusters, and names of queues; see the integration tests."""

from ..integration.conftest import cluster, new_queue_name, queue_name, secret_cluster, shared_cluster

__all__ = ["cluster", "new_queue_name", "queue_name", "secret_cluster", "shared_cluster"]
