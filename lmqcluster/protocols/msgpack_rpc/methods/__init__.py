"""Methods of the interface by subject, and their permissions."""
