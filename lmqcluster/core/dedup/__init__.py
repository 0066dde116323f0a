"""Deduplication: producers, keys, streams of jobs, epochs, batches of nodes."""
