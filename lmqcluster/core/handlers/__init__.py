"""The commands of the log: what each does to the state. Every public method is one command."""
