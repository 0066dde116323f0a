"""Judges of histories and states."""
