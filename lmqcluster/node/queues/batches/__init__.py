"""Batch leases for protocols."""
