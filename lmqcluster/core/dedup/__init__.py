"""Recognises what was stored before: producers, keys, streams of jobs, epochs, batches of nodes."""
