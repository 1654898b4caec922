"""Reports behind commands: status, evidence, changes, verification, suggested routes.

Functions that open a database raise StoreError if it is missing, unreadable or not nftsync's. Times
are in the stored form; labels are the wallets' names.
"""
