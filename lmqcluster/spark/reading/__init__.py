"""Batch and streaming reads."""
