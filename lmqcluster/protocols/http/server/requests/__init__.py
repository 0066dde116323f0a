"""HTTP requests: framing, targets, bodies, JSON within bounds."""
