"""What every route stands on: connections, requests and replies, routing, permissions."""
