"""The process of a node: memory, garbage collection, logs, standard output, service manager, event loop."""
