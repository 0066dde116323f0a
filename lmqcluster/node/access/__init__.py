"""Access control: tokens, permissions, TLS."""
