"""Pulls: wait lists, patterns, and delivery to the clients that asked."""
