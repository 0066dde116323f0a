"""What a node is made of beside the log: queues, access, configuration, events, metrics."""
