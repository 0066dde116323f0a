"""Brokers for task libraries. Each module needs its library, which the extra of the same name installs."""
