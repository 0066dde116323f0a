"""Snapshot files: format, writing, reading, the folder that keeps them."""
