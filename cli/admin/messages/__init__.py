"""Commands on messages, and on the clients, sessions, subscriptions and jobs that hold them."""
