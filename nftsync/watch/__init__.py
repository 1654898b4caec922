"""Alerts and forwarded webhooks: rules, messages and their delivery."""
