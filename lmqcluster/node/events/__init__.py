"""The event journal: what happened to messages, as files."""
