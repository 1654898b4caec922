"""Syncs: read wallets and tokens from the provider into the database.

A task names an object to read; a read is its outcome. An entry is one item of a wallet's list.
"""
