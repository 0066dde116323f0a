"""The state as records: written while the machine continues, and read into a new machine."""
