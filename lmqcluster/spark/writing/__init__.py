"""Batch and streaming writes, and moving messages."""
