"""This release's number, by itself so that any room may ask for it."""

__version__ = "0.4.0"
