"""Membership of a node in its cluster: joining, leaving, incarnations, status."""
