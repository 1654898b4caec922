"""Reports behind commands: status, evidence, changes, verification, suggested routes.

Functions that open a database raise StoreError if it is unusable. Times are in the stored form.
"""
