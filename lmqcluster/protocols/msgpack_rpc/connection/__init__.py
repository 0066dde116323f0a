"""One client connection: requests in, responses out, pulls that wait."""
