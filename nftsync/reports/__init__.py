"""Reports behind commands.

Functions that open a database raise StoreError if it is unusable. Times are in the stored form.
"""
