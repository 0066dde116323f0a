"""Faults, by subject."""
