"""Changes caused by log time alone: leases and messages expire, messages become due, idle queues are deleted."""
