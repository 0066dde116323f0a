"""Tests of the reports on benchmarks."""
