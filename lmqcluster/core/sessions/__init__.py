"""Sessions and the state that ends with them: exclusive queues, locks, places in wait lists."""
