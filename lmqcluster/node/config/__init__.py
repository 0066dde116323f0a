"""The configuration of a node: options, values, and where they come from."""
