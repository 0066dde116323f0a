"""Pushes beyond a single queue: copies, waiting pushes, streams of jobs, transactions."""
