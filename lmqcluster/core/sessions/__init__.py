"""Sessions and what ends with them: exclusive queues, locks, places in wait lists."""
