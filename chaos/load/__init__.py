"""What clients do, and the history of it."""
