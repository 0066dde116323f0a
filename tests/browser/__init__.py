"""The web console in a real browser against a real cluster."""
