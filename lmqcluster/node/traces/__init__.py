"""Spans of requests and deliveries, which a node exports over OTLP."""
