"""Data on the wire: errors, ids, values."""
