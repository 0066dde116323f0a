"""The commands that the log carries: codes, layouts and results."""
