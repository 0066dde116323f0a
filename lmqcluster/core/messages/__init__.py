"""Messages and their bodies in memory, in pages and as columns."""
