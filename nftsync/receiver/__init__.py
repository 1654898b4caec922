"""The webhook receiver: verify, store, reply; it never reads from the provider."""
