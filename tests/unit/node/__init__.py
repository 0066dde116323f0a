"""The parts of a node beside the log: queues, access, configuration, events, metrics."""
