"""The demo: a made-up year at a sandbox provider, and a live run of every part against it."""
