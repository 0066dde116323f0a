"""The connection of a program to a node: address, credentials, contexts and the HTTP API."""
