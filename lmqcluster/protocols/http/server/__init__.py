"""Common parts of all routes: connections, requests and replies, routing, permissions."""
