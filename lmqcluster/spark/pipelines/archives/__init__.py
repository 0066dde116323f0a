"""Queues to tables of files: Parquet and Delta, and compaction."""
