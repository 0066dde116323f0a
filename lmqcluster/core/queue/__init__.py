"""One queue: its messages in order, leases, properties, counters."""
