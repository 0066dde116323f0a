"""Statistics and reports."""
