"""Commands that move many messages, and the benchmark."""
