"""Notebook support.

An image is shown only from an allowed source: `https:`, an IPFS gateway, or the provider's origin.
"""
