"""Group commit: the commands of one event-loop turn form one batch of the log."""
