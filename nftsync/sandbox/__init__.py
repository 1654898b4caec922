"""A local stand-in for the provider: its state, its calls and a server for them."""
