"""Faults: one file for each kind."""
