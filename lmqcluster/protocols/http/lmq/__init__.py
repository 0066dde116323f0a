"""LMQ's routes, byte for byte."""
