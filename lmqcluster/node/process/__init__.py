"""The process of a node: memory, garbage collection, logs, output, service manager, event loop."""
