"""Metrics of a node and its queues: Prometheus, StatsD, rates."""
