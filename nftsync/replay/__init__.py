"""Replay: stored webhooks become reads, and the mirror follows."""
