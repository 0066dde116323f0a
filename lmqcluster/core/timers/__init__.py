"""Changes that log time alone causes: leases expire, messages become due, idle queues end."""
