"""Replay: read the objects that stored webhooks name, and update the mirror.

A job is an object with pending webhooks. A worker claims the webhooks under a lease, waits for
reads, and acknowledges an end state; or it releases them, so that they are pending again. A recheck
repeats a read that showed no change.
"""
