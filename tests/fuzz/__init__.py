"""Input that nobody should send, on all three ports of a real cluster: ``python -m tests.fuzz --minutes 30``."""
