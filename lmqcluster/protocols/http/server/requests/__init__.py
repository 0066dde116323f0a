"""HTTP requests: framing, targets, bodies, bounded JSON."""
