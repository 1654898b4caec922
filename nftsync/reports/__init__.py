"""Reports behind commands: status, evidence, changes, verification, suggested routes."""
