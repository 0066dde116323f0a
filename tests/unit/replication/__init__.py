"""The log and its storage."""
