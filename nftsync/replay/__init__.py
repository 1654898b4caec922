"""Replay: stored webhooks become reads, and the reads update the mirror."""
