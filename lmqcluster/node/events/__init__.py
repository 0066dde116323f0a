"""The event journal: files that record each push, delivery and settlement."""
