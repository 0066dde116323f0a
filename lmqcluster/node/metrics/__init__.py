"""What a node tells of itself and of its queues: Prometheus, StatsD, rates."""
