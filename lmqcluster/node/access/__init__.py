"""Who may do what: tokens, permissions, TLS."""
