"""Invalid input on all ports of a real cluster: ``python -m tests.fuzz --minutes 30``."""
