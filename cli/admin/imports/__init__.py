"""Commands that import from other queue servers."""
