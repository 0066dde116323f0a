"""Snapshot files: format, writing, reading, and their folder."""
