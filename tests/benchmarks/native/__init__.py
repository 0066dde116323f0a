"""Benchmarks with a load generator in Go, so that the client limits nothing: ``python -m tests.benchmarks.native``."""
