"""Reading the provider: its paths, who we are to it, how fast we ask, and what a response means."""
