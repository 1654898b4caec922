"""Notebook support.

Functions that report progress call `tell` with one line at a time. An image is shown only from an
allowed source: `https:`, an IPFS gateway, or the provider's own origin.
"""
