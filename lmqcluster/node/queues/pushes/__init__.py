"""Pushes beyond a single queue: copies, pushes that wait, streams of jobs, transactions."""
