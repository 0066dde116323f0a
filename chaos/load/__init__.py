"""The clients of a drill, and their history."""
