"""The handlers of the log's commands. Every public method is one command."""
