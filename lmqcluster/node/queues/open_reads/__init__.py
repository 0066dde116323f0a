"""Messages that a connection holds until it confirms or aborts them, as Kestrel's clients do."""
