"""The event journal: files with the events of messages."""
