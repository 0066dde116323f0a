"""The cluster in memory."""
