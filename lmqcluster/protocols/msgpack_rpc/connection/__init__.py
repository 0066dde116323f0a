"""A client connection: requests, responses, waiting pulls."""
