"""Group commit: commands of one turn of the event loop become one batch of the log."""
