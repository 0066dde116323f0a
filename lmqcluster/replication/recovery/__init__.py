"""Repair of a running member: snapshots, pages from other members, backpressure."""
