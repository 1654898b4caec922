"""Webhook receiver: verify, store, reply; it sends no requests to the provider."""
