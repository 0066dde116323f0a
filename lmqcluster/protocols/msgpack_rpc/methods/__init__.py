"""The methods of the interface, by subject, and their permissions."""
