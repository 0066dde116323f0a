"""Batch leases as front ends use them."""
