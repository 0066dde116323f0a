"""Files to queues."""
