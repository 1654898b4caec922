"""Service: receiver, replay and periodic syncs in one process."""
