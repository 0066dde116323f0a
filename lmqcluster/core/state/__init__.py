"""The replicated state: the table of queues and the tables beside it."""
