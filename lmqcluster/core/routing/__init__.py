"""Routing of messages between queues: admission, bindings, waiting pushes, dead-lettering."""
