"""How a node belongs to its cluster: joining, leaving, incarnations, standing."""
