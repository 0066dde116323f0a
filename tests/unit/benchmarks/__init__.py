"""What reports on benchmarks."""
