"""Work on the data directory of a stopped node: repair, salvage, restoring a backup."""
