"""Batch leases for front ends."""
