"""Regular expressions over queue names, and the queues that match them."""
