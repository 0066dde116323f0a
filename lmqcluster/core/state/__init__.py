"""Everything that replicas agree on: the table of queues and the tables beside it."""
