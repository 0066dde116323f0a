"""The operations of queues at one node: what front ends call, pulls that wait, patterns, what can be seen."""
