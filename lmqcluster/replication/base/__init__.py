"""Values that all of replication uses: membership, settings, log time, errors."""
