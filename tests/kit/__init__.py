"""Providers, databases, webhooks, processes and browsers that several folders use."""
