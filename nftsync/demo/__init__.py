"""The demo: a year of history at a sandbox provider, then a live run of every part."""
