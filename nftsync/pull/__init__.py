"""Reading what was asked for into the mirror: a sync, from its plan to its result."""
