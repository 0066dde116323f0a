"""The state as records: written while the machine goes on, and read into a new machine."""
