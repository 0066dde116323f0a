"""Commands on their way to the log: checked, built, sent, awaited."""
