"""The way of a message between queues: admission, bindings, waiting pushes, dead-lettering."""
