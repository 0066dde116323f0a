"""Files of one folder, and the thread that writes and syncs them."""
