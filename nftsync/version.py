"""The version of this package, below all that names it."""

__version__ = "0.5.0"
