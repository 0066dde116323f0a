"""What travels: errors, ids, values."""
