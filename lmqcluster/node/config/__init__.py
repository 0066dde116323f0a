"""The configuration of a node: options, values and their sources."""
