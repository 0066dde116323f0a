"""Messages that a connection holds until it confirms or aborts them, as in Kestrel's protocol."""
