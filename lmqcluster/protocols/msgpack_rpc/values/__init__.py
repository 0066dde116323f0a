"""Validation, conversion and encoding of arguments and results."""
